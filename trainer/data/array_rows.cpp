#include "trainer/data/array_rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "memory/base/error.h"

namespace spillway {
namespace {

constexpr std::size_t kBlock = 64 << 10;  // bytes that are looked at a time

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

class ArrayRows final : public ByteStream {
 public:
  ArrayRows(std::unique_ptr<ByteStream> array, std::string path)
      : array_(std::move(array)), path_(std::move(path)), block_(kBlock) {}

  std::size_t read(std::span<char> out) override {
    while (given_ == made_.size()) {
      made_.clear();
      given_ = 0;
      const std::size_t count = array_->read(block_);
      if (count == 0 && place_ == Place::behind) return 0;
      if (count == 0) refuse("the array of rows does not end", "The file was cut short: fetch it or make it again.");
      for (const char c : std::span(block_).first(count)) {
        ++byte_;
        take(c);
      }
    }
    const std::size_t count = std::min(out.size(), made_.size() - given_);
    std::copy_n(made_.begin() + static_cast<std::ptrdiff_t>(given_), count, out.begin());
    given_ += count;
    return count;
  }

 private:
  enum class Place : std::uint8_t { before, at_first, at_row, in_row, after_row, behind };

  void take(char c) {
    if (place_ == Place::in_row) return take_of_row(c);
    if (is_space(c)) return;
    switch (place_) {
      case Place::before:
        if (c != '[') refuse_byte(c, "[, with which an array of rows begins");
        place_ = Place::at_first;
        return;
      case Place::at_first:
        if (c == ']') {
          place_ = Place::behind;
          return;
        }
        [[fallthrough]];
      case Place::at_row:
        if (c == ',' || c == ']') refuse_byte(c, "a row");
        place_ = Place::in_row;
        return take_of_row(c);
      case Place::after_row:
        if (c != ',' && c != ']') refuse_byte(c, ", or ] behind a row");
        place_ = c == ',' ? Place::at_row : Place::behind;
        return;
      case Place::behind: refuse_byte(c, "nothing behind the array"); return;
      case Place::in_row: return;
    }
  }

  // A row that is no object is a line, too: whoever reads it refuses it.
  void take_of_row(char c) {
    if (in_text_) {
      // A line break in a text is no JSON, and must not become any.
      made_ += c == '\n' ? '\r' : c;
      if (is_escaped_)
        is_escaped_ = false;
      else if (c == '\\')
        is_escaped_ = true;
      else if (c == '"')
        in_text_ = false;
      if (!in_text_ && depth_ == 0) end_row();
      return;
    }
    if (depth_ == 0 && (c == ',' || c == ']' || is_space(c))) {
      end_row();
      return take(c);
    }
    made_ += c == '\n' ? ' ' : c;
    if (c == '"') in_text_ = true;
    if (c == '{' || c == '[') ++depth_;
    if ((c == '}' || c == ']') && --depth_ <= 0) end_row();
  }
  void end_row() {
    made_ += '\n';
    depth_ = 0;
    ++rows_;
    place_ = Place::after_row;
  }

  [[noreturn]] void refuse(std::string_view found, std::string_view help) const {
    throw InputError(fmt::format("{} after row {}: {}", path_, rows_, found), std::string(help));
  }
  [[noreturn]] void refuse_byte(char c, std::string_view allowed) const {
    const auto byte = static_cast<unsigned char>(c);
    const std::string shown = byte > 0x20 && byte < 0x7f ? std::string(1, c) : fmt::format("the byte 0x{:02x}", byte);
    throw InputError(fmt::format("{} after row {}: found {} at byte {}, allowed: {}", path_, rows_, shown, byte_, allowed),
                     "It must be one JSON array of objects; a row a line is a .jsonl file.");
  }

  std::unique_ptr<ByteStream> array_;
  std::string path_;
  std::vector<char> block_;
  std::string made_;  // of a block
  std::size_t given_ = 0;
  Place place_ = Place::before;
  bool in_text_ = false, is_escaped_ = false;
  std::int64_t depth_ = 0, rows_ = 0, byte_ = 0;
};

// The bytes that were looked at, then the others.
class Resumed final : public ByteStream {
 public:
  Resumed(std::string head, std::unique_ptr<ByteStream> rest) : head_(std::move(head)), rest_(std::move(rest)) {}
  std::size_t read(std::span<char> out) override {
    if (given_ == head_.size()) return rest_->read(out);
    const std::size_t count = std::min(out.size(), head_.size() - given_);
    std::copy_n(head_.begin() + static_cast<std::ptrdiff_t>(given_), count, out.begin());
    given_ += count;
    return count;
  }

 private:
  std::string head_;
  std::size_t given_ = 0;
  std::unique_ptr<ByteStream> rest_;
};

}  // namespace

std::unique_ptr<ByteStream> rows_of_array(std::unique_ptr<ByteStream> array, const std::string& path) {
  return std::make_unique<ArrayRows>(std::move(array), path);
}

std::unique_ptr<ByteStream> lines_of_json(std::unique_ptr<ByteStream> bytes, const std::string& path, bool& is_array) {
  std::string head(4096, '\0');
  head.resize(read_fully(*bytes, head));
  if (head.starts_with("\xef\xbb\xbf")) head.erase(0, 3);
  const auto first = std::ranges::find_if_not(head, is_space);
  is_array = first != head.end() && *first == '[';
  auto whole = std::make_unique<Resumed>(std::move(head), std::move(bytes));
  if (!is_array) return whole;
  return rows_of_array(std::move(whole), path);
}

}  // namespace spillway
