#include "files/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "files/safetensors_header.h"
#include "files/strict_json.h"
#include "memory/base/bfloat16.h"
#include "memory/base/error.h"

namespace spillway {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian and is read as it is");

constexpr Bytes kMaxIndexBytes = 64 * kMiB;
constexpr std::size_t kStagingBytes = 64 * 1024;

float float_of_f16(std::uint16_t bits) {
  // Halves below 2^-14 are subnormal: shifting into a float's place and multiplying by 2^112 restores both kinds exactly.
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t magnitude = static_cast<std::uint32_t>(bits & 0x7FFFU) << 13;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112F;
  const bool special = (bits & 0x7C00U) == 0x7C00U;
  const std::uint32_t result = special ? (magnitude | 0x7F800000U) : std::bit_cast<std::uint32_t>(scaled);
  return std::bit_cast<float>(result | sign);
}

// Converts staged elements. Returns the index of the first that is not finite, or their number if all are.
template <typename Stored, typename Convert>
std::size_t convert(const std::byte* staged, std::span<float> out, Convert to_float) {
  const auto is_finite = [](float value) { return (std::bit_cast<std::uint32_t>(value) & 0x7F800000U) != 0x7F800000U; };
  bool all_finite = true;
  for (std::size_t i = 0; i < out.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, staged + i * sizeof(Stored), sizeof(Stored));
    out[i] = to_float(stored);
    all_finite &= is_finite(out[i]);
  }
  return all_finite ? out.size() : static_cast<std::size_t>(std::ranges::find_if_not(out, is_finite) - out.begin());
}
std::size_t convert(ElementType type, const std::byte* staged, std::span<float> out) {
  if (type == ElementType::f32) return convert<float>(staged, out, [](float value) { return value; });
  if (type == ElementType::f16) return convert<std::uint16_t>(staged, out, float_of_f16);
  return convert<BFloat16>(staged, out, [](BFloat16 value) { return value.to_float(); });
}

std::string coordinates(const std::vector<std::int64_t>& shape, std::int64_t element) {
  std::vector<std::int64_t> at(shape.size());
  for (std::size_t i = shape.size(); i-- > 0;) {
    at[i] = element % shape[i];
    element /= shape[i];
  }
  return fmt::format("[{}]", fmt::join(at, ", "));
}

}  // namespace

void SafetensorsReader::open_file(const std::filesystem::path& path) {
  PosixFile file = PosixFile::open_to_read(path);
  std::vector<StoredTensor> found = read_safetensors_header(file);
  for (StoredTensor& tensor : found) tensor.file = static_cast<int>(paths_.size());
  tensors_.insert(tensors_.end(), std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()));
  handles_.push_back(std::move(file));
  paths_.push_back(path);
}

void SafetensorsReader::open_index(const std::filesystem::path& index) {
  const std::string file = index.string();
  const nlohmann::json parsed = parse_strict_json(read_text_file(index, kMaxIndexBytes), file);
  const auto map = parsed.is_object() ? parsed.find("weight_map") : parsed.end();
  if (map == parsed.end() || !map->is_object() || map->empty()) {
    throw InputError(fmt::format("{}: has no \"weight_map\" from tensor names to shards", file));
  }
  std::map<std::string, std::vector<std::string>> expected;  // shard -> tensors, shards in the order of their names
  for (const auto& [name, shard] : map->items()) {
    const std::string shard_name = shard.is_string() ? shard.get<std::string>() : std::string();
    // A shard lies beside its index: a path that leads elsewhere is not followed.
    if (shard_name.empty() || shard_name.find('/') != std::string::npos || shard_name.find('\0') != std::string::npos ||
        !shard_name.ends_with(".safetensors")) {
      throw InputError(fmt::format("{}: tensor {} is said to be in {}; a shard's name ends in .safetensors and has no directory",
                                   file, shown_name(name), shown(shard)));
    }
    expected[shard_name].push_back(name);
  }
  for (const auto& [shard_name, names] : expected) {
    const std::filesystem::path shard = index.parent_path() / shard_name;
    std::error_code ignored;
    if (!std::filesystem::exists(shard, ignored)) {
      throw InputError(
          fmt::format("{}: the shard {}, with {} of the model's tensors, is missing", file, shown_name(shard_name), names.size()),
          "Fetch the missing file; every shard that the index names must be there.");
    }
    const std::size_t before = tensors_.size();
    open_file(shard);
    std::vector<std::string_view> found;
    for (std::size_t i = before; i < tensors_.size(); ++i) found.push_back(tensors_[i].name);
    std::sort(found.begin(), found.end());
    for (const std::string& name : names) {
      if (!std::binary_search(found.begin(), found.end(), std::string_view(name))) {
        throw InputError(
            fmt::format("{}: tensor {} is not in the shard {} that the index names", file, shown_name(name), shard.string()));
      }
    }
    for (const std::string_view name : found) {
      const auto claimed = map->find(std::string(name));
      if (claimed == map->end() || *claimed != shard_name) {
        throw InputError(fmt::format("{}: the shard {} has tensor {}, which the index {}", file, shard.string(), shown_name(name),
                                     claimed == map->end() ? "does not know" : "places in " + shown(*claimed)));
      }
    }
  }
}

void SafetensorsReader::index_names() {
  by_name_.reserve(tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const auto [at, added] = by_name_.emplace(tensors_[i].name, i);
    SPILLWAY_CHECK(added, "tensor {} is in two shards, which the index should have excluded", tensors_[i].name);
  }
}

void SafetensorsReader::check_range(const StoredTensor& tensor, std::int64_t first, std::size_t count) {
  SPILLWAY_CHECK(first >= 0 && first <= tensor.elements && static_cast<std::int64_t>(count) <= tensor.elements - first,
                 "elements {} to {} of {}, which has {}", first, first + static_cast<std::int64_t>(count), tensor.name,
                 tensor.elements);
}

void SafetensorsReader::read(const StoredTensor& tensor, std::int64_t first, std::span<float> out) const {
  check_range(tensor, first, out.size());
  if (tensor.type != ElementType::f32 && tensor.type != ElementType::bf16 && tensor.type != ElementType::f16) {
    throw InputError(fmt::format("{}: tensor {} has the type {}; weights may be F32, BF16 or F16", file_of(tensor),
                                 shown_name(tensor.name), name_of(tensor.type)));
  }
  alignas(64) std::array<std::byte, kStagingBytes> staging;
  const std::size_t width = static_cast<std::size_t>(size_of(tensor.type));
  const std::size_t piece = kStagingBytes / width;
  for (std::size_t done = 0; done < out.size(); done += piece) {
    const std::span<float> part = out.subspan(done, std::min(piece, out.size() - done));
    const Bytes offset = tensor.offset + (first + static_cast<std::int64_t>(done)) * static_cast<Bytes>(width);
    handle_of(tensor).read(offset, std::span(staging).first(part.size() * width));
    const std::size_t bad = convert(tensor.type, staging.data(), part);
    if (bad == part.size()) continue;
    const std::int64_t element = first + static_cast<std::int64_t>(done + bad);
    throw InputError(fmt::format("{}: tensor {} has {} at element {} ({}); all weights must be finite", file_of(tensor),
                                 shown_name(tensor.name), part[bad], element, coordinates(tensor.shape, element)),
                     "The file is damaged or its training diverged; use another.");
  }
}

SafetensorsReader::SafetensorsReader(const std::filesystem::path& file_or_directory) : opened_(file_or_directory) {
  std::error_code ignored;  // a path that cannot be examined is opened, and the opening says why it fails
  if (!std::filesystem::is_directory(file_or_directory, ignored)) {
    if (file_or_directory.string().ends_with(".index.json")) {
      open_index(file_or_directory);
    } else {
      open_file(file_or_directory);
    }
  } else if (std::filesystem::exists(file_or_directory / "model.safetensors", ignored)) {
    open_file(file_or_directory / "model.safetensors");
  } else if (std::filesystem::exists(file_or_directory / "model.safetensors.index.json", ignored)) {
    open_index(file_or_directory / "model.safetensors.index.json");
  } else {
    throw InputError(
        fmt::format("{}: has neither model.safetensors nor model.safetensors.index.json", file_or_directory.string()));
  }
  index_names();
}

const StoredTensor* SafetensorsReader::find(std::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : &tensors_[at->second];
}

const StoredTensor& SafetensorsReader::require(std::string_view name, std::span<const std::int64_t> shape) const {
  const StoredTensor* tensor = find(name);
  if (tensor == nullptr) {
    throw InputError(fmt::format("{}: tensor {} is missing; the model needs it with shape [{}]", opened_.string(),
                                 shown_name(name), fmt::join(shape, ", ")),
                     "The weights must be those of the model that config.json describes.");
  }
  if (!std::equal(shape.begin(), shape.end(), tensor->shape.begin(), tensor->shape.end())) {
    throw InputError(fmt::format("{}: tensor {} has shape [{}]; the model needs [{}]", file_of(*tensor), shown_name(name),
                                 fmt::join(tensor->shape, ", "), fmt::join(shape, ", ")),
                     "The weights must be those of the model that config.json describes.");
  }
  return *tensor;
}

}  // namespace spillway
