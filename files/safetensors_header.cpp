#include "files/safetensors_header.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <unordered_set>

#include "files/placeholder.h"
#include "files/strict_json.h"
#include "memory/base/error.h"

namespace spillway {
namespace {

using Json = nlohmann::json;

struct TypeRow {
  ElementType type;
  std::string_view name;
  Bytes bytes;
};
constexpr TypeRow kTypes[] = {
    {ElementType::f32, "F32", 4},         {ElementType::bf16, "BF16", 2},       {ElementType::f16, "F16", 2},
    {ElementType::f64, "F64", 8},         {ElementType::i8, "I8", 1},           {ElementType::i16, "I16", 2},
    {ElementType::i32, "I32", 4},         {ElementType::i64, "I64", 8},         {ElementType::u8, "U8", 1},
    {ElementType::u16, "U16", 2},         {ElementType::u32, "U32", 4},         {ElementType::u64, "U64", 8},
    {ElementType::boolean, "BOOL", 1},    {ElementType::f8_e4m3, "F8_E4M3", 1}, {ElementType::f8_e5m2, "F8_E5M2", 1},
    {ElementType::f8_e8m0, "F8_E8M0", 1}, {ElementType::c64, "C64", 8},
};

const TypeRow& row_of(ElementType type) {
  return *std::find_if(std::begin(kTypes), std::end(kTypes), [type](const TypeRow& row) { return row.type == type; });
}

constexpr std::size_t kMaxDimensions = 16;
// Values inside one tensor's entry: enough for the type, a shape, two offsets and a few keys of someone's own.
constexpr int kMaxValuesPerEntry = 64;
constexpr int kMaxDepth = 8;
constexpr std::string_view kDamaged = "The file is damaged or was not written as safetensors; fetch or write it again.";

// Takes the header's tensors one by one, so that a hostile header cannot make a tree much larger than itself.
class HeaderParser {
 public:
  HeaderParser(std::string file, std::string_view text) : file_(std::move(file)), text_(text) {}

  std::vector<StoredTensor> parse() {
    const Json::parser_callback_t callback = [this](int depth, Json::parse_event_t event, Json& parsed) {
      return take(depth, event, parsed);
    };
    try {
      const Json rest = Json::parse(text_.begin(), text_.end(), callback);
    } catch (const Json::parse_error& error) {
      throw InputError(fmt::format("{}: its header is not valid JSON at byte {} of {}", file_, error.byte, text_.size()),
                       std::string(kDamaged));
    } catch (const Json::exception&) {
      throw InputError(fmt::format("{}: its header has a number that no 64-bit number can hold", file_), std::string(kDamaged));
    }
    return std::move(tensors_);
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const {
    throw InputError(fmt::format("{}: tensor {}: {}", file_, shown_name(name_), problem), std::string(kDamaged));
  }

  // Depth 1 is the header's object, 2 a tensor's entry, 3 its lists. Returns false to drop a value that has been dealt with.
  bool take(int depth, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    if (depth > kMaxDepth)
      throw InputError(fmt::format("{}: its header is nested more than {} deep", file_, kMaxDepth), std::string(kDamaged));
    if (event == Event::key && depth == 1) {
      name_ = parsed.get<std::string>();
      if (!names_.insert(name_).second)
        throw InputError(fmt::format("{}: tensor {} is there twice", file_, shown_name(name_)), std::string(kDamaged));
      keys_.clear();
      values_ = 0;
      return true;
    }
    if (event == Event::key && depth == 2 && !keys_.insert(parsed.get<std::string>()).second) {
      refuse(fmt::format("the key {} is there twice", shown(parsed)));
    }
    const bool metadata = name_ == "__metadata__";
    if (depth >= 2 && !metadata && (event == Event::value || event == Event::array_start || event == Event::object_start) &&
        ++values_ > kMaxValuesPerEntry) {
      refuse(fmt::format("its entry has more than {} values", kMaxValuesPerEntry));
    }
    if (depth == 1 && metadata && event == Event::value && parsed.is_null()) return false;  // as if there were none
    if (depth == 1 && (event == Event::value || event == Event::array_end)) {
      refuse(fmt::format("its entry is {}; an object was expected", shown(parsed)));
    }
    if (depth == 1 && event == Event::object_end) {
      if (metadata) {
        take_metadata(parsed);
      } else {
        take_tensor(parsed);
      }
      return false;
    }
    return true;
  }

  void take_metadata(const Json& entry) const {
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) refuse(fmt::format("the value of {} is {}; a string was expected", shown_name(key), shown(value)));
    }
  }

  void take_tensor(const Json& entry) {
    StoredTensor tensor;
    tensor.name = name_;
    const Json& dtype = member(entry, "dtype");
    const auto row = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TypeRow& candidate) {
      return dtype.is_string() && dtype.get_ref<const std::string&>() == candidate.name;
    });
    if (row == std::end(kTypes)) refuse(fmt::format("its dtype is {}; F32, BF16, F16 and I32 can be read", shown(dtype)));
    tensor.type = row->type;

    const Json& shape = member(entry, "shape");
    if (!shape.is_array() || shape.size() > kMaxDimensions) {
      refuse(fmt::format("its shape is {}; a list of at most {} whole numbers was expected", shown(shape), kMaxDimensions));
    }
    tensor.elements = 1;
    for (const Json& dimension : shape) {
      const auto size = whole_number(dimension);
      if (!size) refuse(fmt::format("its shape is {}; whole numbers from 0 were expected", shown(shape)));
      if (__builtin_mul_overflow(tensor.elements, *size, &tensor.elements)) {
        refuse(fmt::format("its shape {} has more elements than 64 bits can count", shown(shape)));
      }
      tensor.shape.push_back(*size);
    }
    Bytes needed = 0;
    if (__builtin_mul_overflow(tensor.elements, row->bytes, &needed)) {
      refuse(fmt::format("its shape {} has more bytes than 64 bits can count", shown(shape)));
    }

    const Json& offsets = member(entry, "data_offsets");
    const auto begin = offsets.is_array() && offsets.size() == 2 ? whole_number(offsets[0]) : std::nullopt;
    const auto end = begin ? whole_number(offsets[1]) : std::nullopt;
    if (!end) refuse(fmt::format("its data_offsets are {}; [begin, end] was expected", shown(offsets)));
    if (*begin > *end) refuse(fmt::format("its data begins at {} and ends before, at {}", *begin, *end));
    if (*end - *begin != needed) {
      refuse(fmt::format("its data_offsets hold {} bytes, but its shape {} in {} takes {}", *end - *begin, shown(shape),
                         row->name, needed));
    }
    tensor.offset = *begin;
    tensor.bytes = needed;
    tensors_.push_back(std::move(tensor));
  }

  const Json& member(const Json& entry, const char* key) const {
    const auto at = entry.find(key);
    if (at == entry.end()) refuse(fmt::format("its entry has no \"{}\"", key));
    return *at;
  }

  static std::optional<std::int64_t> whole_number(const Json& value) {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<std::int64_t>(value.get<std::uint64_t>());
  }

  std::string file_;
  std::string_view text_;
  std::vector<StoredTensor> tensors_;
  std::unordered_set<std::string> names_;
  std::string name_;            // of the entry being read
  std::set<std::string> keys_;  // of the entry being read
  int values_ = 0;              // of the entry being read
};

// Checks that tensors cover the data from its first byte to its last, each byte once.
void check_coverage(const std::vector<StoredTensor>& tensors, const std::string& file, Bytes header, Bytes data) {
  Bytes covered = 0;
  const StoredTensor* last = nullptr;
  for (const StoredTensor& tensor : tensors) {
    if (tensor.offset < covered) {
      throw InputError(fmt::format("{}: the data of tensor {} begins at {} inside that of {}, which ends at {}", file,
                                   shown_name(tensor.name), tensor.offset, shown_name(last->name), covered),
                       std::string(kDamaged));
    }
    if (tensor.offset > covered) {
      throw InputError(fmt::format("{}: bytes {} to {} of its data, before tensor {}, belong to no tensor", file, covered,
                                   tensor.offset, shown_name(tensor.name)),
                       std::string(kDamaged));
    }
    covered = tensor.offset + tensor.bytes;
    last = &tensor;
  }
  if (covered > data) {
    throw InputError(
        fmt::format("{}: is cut short: its header describes {} bytes of data up to the end of tensor {}, {} are there ({} of {} "
                    "bytes of the whole file)",
                    file, covered, shown_name(last->name), data, header + data,
                    static_cast<std::uint64_t>(header) + static_cast<std::uint64_t>(covered)),
        "Fetch or copy the file again.");
  }
  if (covered < data) {
    throw InputError(fmt::format("{}: has {} bytes after its last tensor that belong to none", file, data - covered),
                     std::string(kDamaged));
  }
}

}  // namespace

Bytes size_of(ElementType type) { return row_of(type).bytes; }
std::string_view name_of(ElementType type) { return row_of(type).name; }
ElementType element_type_of(DType dtype) {
  return dtype == DType::float32 ? ElementType::f32 : dtype == DType::bfloat16 ? ElementType::bf16 : ElementType::f16;
}

namespace {

// Like the reference implementation, this wants a JSON object that ends with its last '}' or with spaces after it.
void check_header_text(const std::string& path, const std::string& text) {
  if (text.empty() || text.front() != '{')
    throw InputError(fmt::format("{}: its header does not begin with '{{'", path), std::string(kDamaged));
  // A parser may take a zero byte for the end and would not see what follows.
  if (const std::size_t zero = text.find('\0'); zero != text.npos) {
    throw InputError(fmt::format("{}: its header has a zero byte at byte {} of {}; it may be filled up with spaces alone", path,
                                 zero, text.size()),
                     std::string(kDamaged));
  }
}

}  // namespace

std::vector<StoredTensor> read_safetensors_header(const PosixFile& file) {
  const std::string path = file.path().string();
  const Bytes size = file.size();
  std::uint64_t length = 0;
  std::string head(static_cast<std::size_t>(std::min<Bytes>(size, kPlaceholderBytes)), '\0');
  file.read(0, std::as_writable_bytes(std::span(head)));
  refuse_placeholder(path, head, size);
  if (size < static_cast<Bytes>(sizeof length)) {
    throw InputError(fmt::format("{}: has {} bytes, too few for a safetensors header", path, size),
                     "Fetch or copy the file again.");
  }
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > static_cast<std::uint64_t>(kMaxSafetensorsHeader)) {
    throw InputError(fmt::format("{}: its first 8 bytes say that the header has {} bytes; at most {} are allowed", path, length,
                                 kMaxSafetensorsHeader),
                     std::string(kDamaged));
  }
  const Bytes header = static_cast<Bytes>(sizeof length) + static_cast<Bytes>(length);
  if (header > size) {
    throw InputError(fmt::format("{}: is cut short: its header takes {} bytes, the file has {}", path, header, size),
                     "Fetch or copy the file again.");
  }
  std::string text(static_cast<std::size_t>(length), '\0');
  file.read(static_cast<Bytes>(sizeof length), std::as_writable_bytes(std::span(text)));
  check_header_text(path, text);
  std::vector<StoredTensor> tensors = HeaderParser(path, text).parse();
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
  });
  check_coverage(tensors, path, header, size - header);
  for (StoredTensor& tensor : tensors) tensor.offset += header;
  return tensors;
}

}  // namespace spillway
