#include "trainer/chat/template_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "trainer/chat/template_case.h"
#include "trainer/chat/template_problem.h"
#include "trainer/text/tokenizer_unicode.h"
#include "trainer/text/utf8.h"

namespace spillway {
namespace {

constexpr std::int32_t kCapitalSigma = 0x3a3, kSigma = 0x3c3, kFinalSigma = 0x3c2;
constexpr std::int32_t kCapitalIWithDot = 0x130;

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0U) == 0x80; }

std::vector<std::int32_t> code_points_of(std::string_view text) {
  std::vector<std::int32_t> all;
  while (!text.empty()) {
    const CodePoint c = decode_utf8(text.data());
    all.push_back(c.value);
    text.remove_prefix(static_cast<std::size_t>(c.bytes));
  }
  return all;
}

template <typename Goes>
std::string_view strip(std::string_view text, TextSide side, const Goes& goes) {
  while (side != TextSide::right && !text.empty()) {
    const CodePoint c = decode_utf8(text.data());
    if (!goes(c.value)) break;
    text.remove_prefix(static_cast<std::size_t>(c.bytes));
  }
  while (side != TextSide::left && !text.empty()) {
    const CodePoint c = decode_last_utf8(text);
    if (!goes(c.value)) break;
    text.remove_suffix(static_cast<std::size_t>(c.bytes));
  }
  return text;
}

const LongCase* long_case_of(std::int32_t code_point) {
  const auto found = std::ranges::lower_bound(kLongCases, code_point, {}, &LongCase::code_point);
  return found != kLongCases.end() && found->code_point == code_point ? &*found : nullptr;
}

enum class Case : std::uint8_t { upper, title };
void append_cased(std::string& text, std::int32_t code_point, Case to) {
  if (const LongCase* const several = code_point < 0x80 ? nullptr : long_case_of(code_point)) {
    for (const std::int32_t c : to == Case::upper ? several->upper : several->title) {
      if (c != 0) append_utf8(text, c);
    }
    return;
  }
  append_utf8(text, to == Case::upper ? utf8proc_toupper(code_point) : utf8proc_totitle(code_point));
}

// A sigma is final after a letter and before none. Unicode has a rule that skips marks and apostrophes between them; we do not
// have that rule, so beside such a character we do not guess.
enum class Beside : std::uint8_t { nothing, letter, other };
Beside beside(std::int32_t c) {
  const utf8proc_category_t category = utf8proc_category(c);
  if (category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT)
    return Beside::letter;
  if (category == UTF8PROC_CATEGORY_LO) return c == 0xaa || c == 0xba ? Beside::other : Beside::nothing;  // ª and º are small
  const bool is_plain =
      c < 0x80 && std::string_view("0123456789,!?()\"-*<>").find(static_cast<char>(c)) != std::string_view::npos;
  return is_plain || is_python_space(c) ? Beside::nothing : Beside::other;
}

std::int32_t small_sigma(std::string_view text, std::size_t at) {
  constexpr std::size_t kBytes = 2;  // bytes of a sigma
  const Beside before = at == 0 ? Beside::nothing : beside(decode_last_utf8(text.substr(0, at)).value);
  const Beside after = at + kBytes == text.size() ? Beside::nothing : beside(decode_utf8(text.data() + at + kBytes).value);
  if (before == Beside::nothing || after == Beside::letter) return kSigma;
  if (before == Beside::other || after == Beside::other)
    throw TemplateProblem{"lower case of a capital sigma (U+03A3) beside punctuation or a mark, which is not in this version"};
  return kFinalSigma;
}

// Appends the lower case of the character of `text` at `at`.
void append_lower_of(std::string& made, std::string_view text, std::size_t at) {
  const std::int32_t c = decode_utf8(text.data() + at).value;
  if (c == kCapitalIWithDot)
    made += "i\xcc\x87";
  else
    append_utf8(made, c == kCapitalSigma ? small_sigma(text, at) : utf8proc_tolower(c));
}

// Appends the lower case of all characters of `text` from `at` on.
void append_lower(std::string& made, std::string_view text, std::size_t at) {
  while (at < text.size()) {
    append_lower_of(made, text, at);
    at += static_cast<std::size_t>(decode_utf8(text.data() + at).bytes);
  }
}

bool has_case(std::int32_t c) {
  const utf8proc_category_t category = utf8proc_category(c);
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT;
}

}  // namespace

bool is_python_space(std::int32_t c) { return is_white_space(c) || (c >= 0x1c && c <= 0x1f); }

std::string_view strip_space(std::string_view text, TextSide side) { return strip(text, side, is_python_space); }

std::string_view strip_characters(std::string_view text, TextSide side, std::string_view characters) {
  std::vector<std::int32_t> which = code_points_of(characters);
  std::ranges::sort(which);
  return strip(text, side, [&](std::int32_t c) { return std::ranges::binary_search(which, c); });
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view by, std::int64_t most) {
  std::vector<std::string_view> parts;
  for (std::int64_t cuts = 0; most < 0 || cuts < most; ++cuts) {
    const std::size_t at = find_text(text, by);
    if (at == text.npos) break;
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + by.size());
  }
  parts.push_back(text);
  return parts;
}

std::vector<std::string_view> split_at_space(std::string_view text, std::int64_t most) {
  std::vector<std::string_view> parts;
  for (text = strip_space(text, TextSide::left); !text.empty(); text = strip_space(text, TextSide::left)) {
    if (most >= 0 && static_cast<std::int64_t>(parts.size()) == most) {  // the rest, with the space at its end
      parts.push_back(text);
      break;
    }
    std::size_t end = 0;
    while (end < text.size()) {
      const CodePoint c = decode_utf8(text.data() + end);
      if (is_python_space(c.value)) break;
      end += static_cast<std::size_t>(c.bytes);
    }
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return parts;
}

std::size_t find_text(std::string_view text, std::string_view part) {
  if (part.empty()) return 0;
  const void* const found = memmem(text.data(), text.size(), part.data(), part.size());
  return found == nullptr ? text.npos : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

std::optional<std::string> replace_text(std::string_view text, std::string_view from, std::string_view to, std::int64_t most,
                                        std::size_t longest) {
  std::string made;
  std::int64_t done = 0;
  const auto may_go_on = [&] { return (most < 0 || done < most) && made.size() <= longest; };
  if (from.empty()) {
    while (!text.empty() && may_go_on()) {
      const auto bytes = static_cast<std::size_t>(decode_utf8(text.data()).bytes);
      made.append(to).append(text.substr(0, bytes));
      text.remove_prefix(bytes);
      ++done;
    }
    if (text.empty() && may_go_on()) made += to;
  }
  while (!from.empty() && may_go_on()) {
    const std::size_t at = find_text(text, from);
    if (at == text.npos) break;
    made.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
    ++done;
  }
  made += text;
  return made.size() <= longest ? std::optional(std::move(made)) : std::nullopt;
}

std::vector<std::string_view> characters_of(std::string_view text) {
  std::vector<std::string_view> all;
  while (!text.empty()) {
    const auto bytes = static_cast<std::size_t>(decode_utf8(text.data()).bytes);
    all.push_back(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
  return all;
}

std::int64_t count_characters(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return !is_continuation(c); });
}

std::string_view text_between(std::string_view text, std::int64_t first, std::int64_t last) {
  const auto skip = [&](std::size_t at, std::int64_t characters) {
    for (; characters > 0; --characters) at += static_cast<std::size_t>(decode_utf8(text.data() + at).bytes);
    return at;
  };
  const std::size_t begin = skip(0, first);
  return text.substr(begin, skip(begin, std::max<std::int64_t>(last - first, 0)) - begin);
}

std::string upper_case(std::string_view text) {
  std::string made;
  while (!text.empty()) {
    const CodePoint c = decode_utf8(text.data());
    append_cased(made, c.value, Case::upper);
    text.remove_prefix(static_cast<std::size_t>(c.bytes));
  }
  return made;
}

std::string lower_case(std::string_view text) {
  std::string made;
  append_lower(made, text, 0);
  return made;
}

std::string capitalized(std::string_view text) {
  std::string made;
  if (text.empty()) return made;
  const CodePoint first = decode_utf8(text.data());
  append_cased(made, first.value, Case::title);
  append_lower(made, text, static_cast<std::size_t>(first.bytes));
  return made;
}

std::string titled(std::string_view text) {
  std::string made;
  bool is_within = false;  // a word
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = decode_utf8(text.data() + at);
    if (is_within)
      append_lower_of(made, text, at);
    else
      append_cased(made, c.value, Case::title);
    is_within = has_case(c.value);
    at += static_cast<std::size_t>(c.bytes);
  }
  return made;
}

std::string titled_by_space(std::string_view text) {
  const auto separates = [](std::int32_t c) {
    return is_python_space(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) != std::string_view::npos);
  };
  std::string made;
  while (!text.empty()) {
    std::size_t end = 0;
    const bool is_between = separates(decode_utf8(text.data()).value);
    while (end < text.size() && separates(decode_utf8(text.data() + end).value) == is_between)
      end += static_cast<std::size_t>(decode_utf8(text.data() + end).bytes);
    const auto first = static_cast<std::size_t>(decode_utf8(text.data()).bytes);
    made += upper_case(text.substr(0, first)) + lower_case(text.substr(first, end - first));
    text.remove_prefix(end);
  }
  return made;
}

std::string escaped_markup(std::string_view text) {
  std::string made;
  for (const char c : text) {
    switch (c) {
      case '&': made += "&amp;"; break;
      case '<': made += "&lt;"; break;
      case '>': made += "&gt;"; break;
      case '\'': made += "&#39;"; break;
      case '"': made += "&#34;"; break;
      default: made += c;
    }
  }
  return made;
}

void append_utf8(std::string& text, std::int32_t code_point) {
  std::array<utf8proc_uint8_t, 4> bytes;
  const utf8proc_ssize_t count = utf8proc_encode_char(code_point, bytes.data());
  text.append(bytes.begin(), bytes.begin() + count);
}

}  // namespace spillway
