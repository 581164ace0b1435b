// Reads the object on a line of JSONL as the parser meets it: no tree is built. The derived class gives the keys their meaning.
// Not here: the meaning of the keys (row_content.h).
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/data/unread_values.h"

namespace spillway {

inline constexpr std::size_t kLongestLine = 64 << 20;  // bounds memory; a row of a million ids and labels takes a quarter of it
inline constexpr const char* kSkipHelp = "--skip-bad-lines leaves such lines out and counts them";

inline bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == line.npos; }

// A Row has these functions. Each returns false if it has refused:
//   bool enter(const std::string& key)     a key of the object
//   bool take(std::string& text)           a string
//   bool number(std::int64_t value)        a whole number; the largest int64 stands for all beyond the int32 range
//   bool real(const std::string& text)     a number with a fraction
//   bool other(std::string_view found)     null or a boolean
//   bool open(std::string_view found)      an object or an array begins within the object, or an array in its place
//   bool finish(std::string_view line)     all of the line has been read
//   bool reads(std::string_view key, const std::vector<std::string_view>& keys)   true if the row reads this key of the object,
//                                          which has these `keys`; if not, its value need not be valid JSON
//   void restart()                         the line is read again from its beginning
template <typename Row>
class RowReader {
 public:
  using json = nlohmann::json;
  using number_integer_t = json::number_integer_t;
  using number_unsigned_t = json::number_unsigned_t;
  using number_float_t = json::number_float_t;
  using string_t = json::string_t;
  using binary_t = json::binary_t;

  // Returns false if it refuses the line; problem() says why.
  bool read(std::string_view line) {
    // The parser takes a zero byte for the end and would not see the bytes after it.
    if (const std::size_t zero = line.find('\0'); zero != line.npos) return is_no_json(zero + 1);
    line_ = line;
    if (json::sax_parse(line, &row())) return row().finish(line);
    if (!is_syntax_) return false;
    const auto reads = [&](std::string_view key, const auto& keys) { return row().reads(key, keys); };
    std::optional<std::string> mended = with_unread_values_mended(line, reads);
    if (!mended) return false;
    mended_ = std::move(*mended);
    line_ = mended_;
    depth_ = 0;
    problem_.clear();
    row().restart();
    return json::sax_parse(line_, &row()) && row().finish(line_);
  }
  const std::string& problem() const { return problem_; }
  std::string_view line() const { return line_; }  // the text that was parsed

  bool null() { return row().other("null"); }
  bool boolean(bool) { return row().other("a boolean"); }
  bool number_integer(number_integer_t value) { return row().number(value); }
  bool number_unsigned(number_unsigned_t value) {
    constexpr auto most = std::numeric_limits<std::int64_t>::max();
    return row().number(value > std::numeric_limits<std::int32_t>::max() ? most : static_cast<std::int64_t>(value));
  }
  bool number_float(number_float_t, const string_t& text) { return row().real(text); }
  bool string(string_t& text) { return row().take(text); }
  bool binary(binary_t&) { return true; }  // JSON text has none
  bool start_object(std::size_t) { return (depth_ == 0 || row().open("an object")) && ++depth_ > 0; }
  bool end_object() { return --depth_, true; }
  bool start_array(std::size_t) { return row().open("an array") && ++depth_ > 0; }
  bool end_array() { return --depth_, true; }
  bool key(string_t& name) { return depth_ != 1 || row().enter(name); }
  bool parse_error(std::size_t byte, const std::string&, const json::exception&) {
    is_syntax_ = true;
    return is_no_json(byte);
  }

 protected:
  int depth() const { return depth_; }  // 1: within the object; 0: before it
  bool refuse_saying(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
    return false;
  }
  bool refuse(std::string_view found, std::string_view allowed) {
    return refuse_saying(fmt::format("found {}, allowed: {}", found, allowed));
  }
  // Notes that a key was seen; refuses it if it was seen before.
  bool once(bool& seen, std::string_view name) {
    if (seen) return refuse(fmt::format("\"{}\" twice", name), "each key once");
    return seen = true;
  }

 private:
  Row& row() { return static_cast<Row&>(*this); }
  bool is_no_json(std::size_t byte) { return refuse_saying(fmt::format("not valid JSON at byte {} of the line", byte)); }

  int depth_ = 0;
  bool is_syntax_ = false;
  std::string problem_;
  std::string_view line_;
  std::string mended_;
};

}  // namespace spillway
