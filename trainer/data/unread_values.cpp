#include "trainer/data/unread_values.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace spillway {
namespace {

// Offset after the string that begins at `at`.
std::size_t end_of_string(std::string_view line, std::size_t at) {
  for (std::size_t i = at + 1; i < line.size(); ++i) {
    if (line[i] == '\\') {
      ++i;
    } else if (line[i] == '"') {
      return i + 1;
    }
  }
  return line.size();
}

// The unit of an escape at `at`: "\ud83d" gives 0xd83d, other text -1.
int escaped_unit(std::string_view text, std::size_t at) {
  constexpr std::size_t kLength = 6;
  if (at + kLength > text.size() || text[at] != '\\' || text[at + 1] != 'u') return -1;
  int unit = 0;
  for (std::size_t i = at + 2; i < at + kLength; ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (std::isxdigit(c) == 0) return -1;
    unit = 16 * unit + (std::isdigit(c) != 0 ? c - '0' : std::tolower(c) - 'a' + 10);
  }
  return unit;
}

bool is_high(int unit) { return unit >= 0xd800 && unit < 0xdc00; }
bool is_low(int unit) { return unit >= 0xdc00 && unit < 0xe000; }

bool mend_surrogates(std::string& line, std::size_t begin, std::size_t end) {
  bool mended = false;
  for (std::size_t i = begin; i < end; ++i) {
    if (line[i] != '\\') continue;
    const int unit = escaped_unit(line, i);
    if (is_high(unit) && is_low(escaped_unit(line, i + 6))) {
      i += 11;
    } else if (is_high(unit) || is_low(unit)) {
      line.replace(i, 6, "\\ufffd");
      mended = true;
      i += 5;
    } else {
      ++i;
    }
  }
  return mended;
}

// Calls on_key(begin, end) for the keys of the outermost object, on_string(begin, end) for every other string, and on_word(at)
// outside of strings, which returns the number of bytes to go on. The parts of a value come after its key.
template <typename OnKey, typename OnString, typename OnWord>
void walk(std::string_view line, const OnKey& on_key, const OnString& on_string, const OnWord& on_word) {
  int depth = 0;
  bool expects_key = false;
  for (std::size_t i = 0; i < line.size();) {
    const char c = line[i];
    if (c == '"') {
      const std::size_t end = end_of_string(line, i);
      if (depth == 1 && expects_key) {
        on_key(i, end);
      } else {
        on_string(i, end);
      }
      expects_key = false;
      i = end;
      continue;
    }
    if (c == '{' || c == '[') expects_key = ++depth == 1 && c == '{';
    if (c == '}' || c == ']') --depth;
    if (c == ',' && depth == 1) expects_key = true;
    i += depth >= 1 ? on_word(i) : 1;
  }
}

}  // namespace

std::optional<std::string> with_unread_values_mended(
    std::string_view line, FunctionRef<bool(std::string_view, const std::vector<std::string_view>&)> reads) {
  std::vector<std::string_view> keys;
  const auto inner = [](std::string_view whole, std::size_t begin, std::size_t end) {
    return end - begin < 2 ? std::string_view() : whole.substr(begin + 1, end - begin - 2);
  };
  walk(
      line, [&](std::size_t begin, std::size_t end) { keys.push_back(inner(line, begin, end)); }, [](std::size_t, std::size_t) {},
      [](std::size_t) { return std::size_t{1}; });
  std::string mended(line);
  bool is_mended = false, is_read = true;
  const auto mend_word = [&](std::size_t at) {
    constexpr std::array<std::string_view, 3> kWords = {"-Infinity", "Infinity", "NaN"};
    for (const std::string_view word : kWords) {
      if (is_read || line.substr(at, word.size()) != word) continue;
      mended.replace(at, word.size(), "0" + std::string(word.size() - 1, ' '));
      is_mended = true;
      return word.size();
    }
    return std::size_t{1};
  };
  walk(
      line,
      [&](std::size_t begin, std::size_t end) {
        is_read = reads(inner(line, begin, end), keys);
        if (!is_read) is_mended |= mend_surrogates(mended, begin, end);
      },
      [&](std::size_t begin, std::size_t end) {
        if (!is_read) is_mended |= mend_surrogates(mended, begin, end);
      },
      mend_word);
  return is_mended ? std::optional(std::move(mended)) : std::nullopt;
}

}  // namespace spillway
