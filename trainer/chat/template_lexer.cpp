#include "trainer/chat/template_lexer.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "files/json_text.h"
#include "memory/base/error.h"
#include "trainer/chat/template_text.h"
#include "trainer/text/utf8.h"

namespace spillway {
namespace {

using Token = TemplateToken;

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string with_line_feeds(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    text += source[i] == '\r' ? '\n' : source[i];
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& origin) : source_(source), origin_(origin) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const std::size_t open = next_open();
      text(source_.substr(at_, open - at_), open);
      if (open == source_.size()) break;
      at_ = open + 2;
      const char kind = source_[open + 1];
      if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) ++at_;
      if (kind == '#')
        comment();
      else
        code(kind == '%');
    }
    add(Token::Kind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void refuse(const std::string& found) const {
    throw InputError(fmt::format("{}: line {}: {}", origin_, line_, found));
  }
  void add(Token::Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void pass(std::size_t to) {
    line_ += static_cast<int>(
        std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_), source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }
  std::size_t next_open() const {
    for (std::size_t i = at_; i + 1 < source_.size(); ++i) {
      if (source_[i] == '{' && (source_[i + 1] == '%' || source_[i + 1] == '{' || source_[i + 1] == '#')) return i;
    }
    return source_.size();
  }
  void text(std::string_view text, std::size_t open) {
    const std::size_t end = at_ + text.size();
    if (trims_all_)
      text = strip_space(text, TextSide::left);
    else if (trims_newline_ && text.starts_with('\n'))
      text.remove_prefix(1);
    if (open < source_.size()) {
      const char mark = open + 2 < source_.size() ? source_[open + 2] : ' ';
      if (mark == '-')
        text = strip_space(text, TextSide::right);
      else if (mark != '+' && source_[open + 1] != '{')
        text = without_indentation(text, end - text.size());
    }
    if (!text.empty()) add(Token::Kind::text, std::string(text));
    pass(end);
    trims_all_ = trims_newline_ = false;
  }
  // Removes the white space before a block if nothing else stands before it on its line.
  std::string_view without_indentation(std::string_view text, std::size_t at) const {
    const std::size_t line = text.rfind('\n') + 1;  // 0 if there is no newline
    const bool is_line = line > 0 || at == 0 || source_[at - 1] == '\n';
    return is_line && strip_space(text.substr(line), TextSide::left).empty() ? text.substr(0, line) : text;
  }
  void comment() {
    const std::size_t close = source_.find("#}", at_);
    if (close == source_.npos) refuse("found no #} for a {#");
    const char mark = close > at_ ? source_[close - 1] : ' ';
    trims_all_ = mark == '-';
    trims_newline_ = mark != '+';
    pass(close + 2);
  }
  void pass_space() {
    while (at_ < source_.size()) {
      const CodePoint c = decode_utf8(source_.data() + at_);
      if (!is_python_space(c.value)) return;
      pass(at_ + static_cast<std::size_t>(c.bytes));
    }
  }
  void code(bool is_block) {
    add(is_block ? Token::Kind::begin_block : Token::Kind::begin_output, "");
    const std::string_view close = is_block ? "%}" : "}}";
    int braces = 0;  // an object within {{ }} ends with the same braces
    for (;;) {
      pass_space();
      if (at_ >= source_.size()) refuse(fmt::format("found no {} for a {}", close, is_block ? "{%" : "{{"));
      const std::string_view rest = source_.substr(at_);
      const bool has_mark = (rest[0] == '-' || (is_block && rest[0] == '+')) && rest.substr(1).starts_with(close);
      if (braces == 0 && (has_mark || rest.starts_with(close))) {
        trims_all_ = has_mark && rest[0] == '-';
        trims_newline_ = is_block && !(has_mark && rest[0] == '+');
        pass(at_ + (has_mark ? 3 : 2));
        add(is_block ? Token::Kind::end_block : Token::Kind::end_output, "");
        return;
      }
      if (rest[0] == '{') ++braces;
      if (rest[0] == '}') --braces;
      item(rest);
    }
  }
  void item(std::string_view rest) {
    if (is_name_start(rest[0])) {
      std::size_t end = 1;
      while (end < rest.size() && (is_name_start(rest[end]) || is_digit(rest[end]))) ++end;
      add(Token::Kind::name, std::string(rest.substr(0, end)));
      return pass(at_ + end);
    }
    if (is_digit(rest[0])) {
      const std::size_t end = end_of_number(rest);
      add(Token::Kind::number, std::string(rest.substr(0, end)));
      return pass(at_ + end);
    }
    if (rest[0] == '\'' || rest[0] == '"') return string(rest);
    for (const std::string_view symbol : {"==", "!=", "<=", ">=", "//", "**"}) {
      if (!rest.starts_with(symbol)) continue;
      add(Token::Kind::symbol, std::string(symbol));
      return pass(at_ + 2);
    }
    if (std::string_view("+-*/%~|.,:()[]{}<>=").find(rest[0]) == std::string_view::npos)
      refuse(fmt::format("found {}", quoted_json(rest.substr(0, static_cast<std::size_t>(decode_utf8(rest.data()).bytes)))));
    add(Token::Kind::symbol, std::string(1, rest[0]));
    pass(at_ + 1);
  }

  // Behind a dot a number is whole: `a.0.1` is a[0][1].
  std::size_t end_of_number(std::string_view rest) const {
    const auto digits = [&](std::size_t from) {
      while (from < rest.size() && is_digit(rest[from])) ++from;
      return from;
    };
    std::size_t end = digits(1);
    if (at_ > 0 && source_[at_ - 1] == '.') return end;
    if (end < rest.size() && rest[end] == '.' && digits(end + 1) > end + 1) end = digits(end + 1);
    if (end < rest.size() && (rest[end] == 'e' || rest[end] == 'E')) {
      const bool has_sign = end + 1 < rest.size() && (rest[end + 1] == '+' || rest[end + 1] == '-');
      const std::size_t first = end + (has_sign ? 2 : 1);
      if (digits(first) > first) end = digits(first);
    }
    return end;
  }

  void string(std::string_view rest) {
    std::string value;
    std::size_t i = 1;
    while (i < rest.size() && rest[i] != rest[0]) {
      if (rest[i] == '\\' && i + 1 < rest.size())
        i = escape(rest, i + 1, value);
      else
        value += rest[i++];
    }
    if (i >= rest.size()) refuse("found a string without an end");
    add(Token::Kind::string, value);
    pass(at_ + i + 1);
  }
  // Appends the character of a backslash escape, as Python has it; returns the offset after it.
  std::size_t escape(std::string_view rest, std::size_t at, std::string& value) const {
    constexpr std::string_view kShort = "n\nr\rt\ta\ab\bf\fv\v\\\\''\"\"";
    const char c = rest[at];
    for (std::size_t i = 0; i < kShort.size(); i += 2) {
      if (c != kShort[i]) continue;
      value += kShort[i + 1];
      return at + 1;
    }
    if (c == '\n') return at + 1;
    if (c == 'x') return code_point(rest, at + 1, 2, 2, 16, value);
    if (c == 'u') return code_point(rest, at + 1, 4, 4, 16, value);
    if (c == 'U') return code_point(rest, at + 1, 8, 8, 16, value);
    if (c >= '0' && c <= '7') return code_point(rest, at, 1, 3, 8, value);
    if (c == 'N' || static_cast<unsigned char>(c) >= 0x80)
      refuse("found \\N, or a backslash before a character that is not ASCII, in a string, which is not in this version");
    value += '\\';
    value += c;
    return at + 1;
  }
  std::size_t code_point(std::string_view rest, std::size_t at, std::size_t fewest, std::size_t most, int base,
                         std::string& value) const {
    const std::string_view digits = rest.substr(at, most);
    std::uint32_t found = 0;
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), found, base);
    const auto used = static_cast<std::size_t>(stop - digits.data());
    const bool is_character = error == std::errc() && found <= 0x10ffff && (found < 0xd800 || found > 0xdfff);
    if (used < fewest || !is_character)
      refuse(fmt::format("found \\{} in a string, allowed: the digits of a Unicode character", rest.substr(at - 1, 1)));
    append_utf8(value, static_cast<std::int32_t>(found));
    return at + used;
  }

  std::string_view source_;
  const std::string& origin_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool trims_all_ = false;      // of all white space that follows
  bool trims_newline_ = false;  // of one newline that follows
};

}  // namespace

std::vector<Token> cut_template(std::string_view source, const std::string& origin) {
  if (const std::size_t invalid = find_invalid_utf8(source); invalid != kValidUtf8)
    throw InputError(fmt::format("{}: no UTF-8 at byte {}", origin, invalid));
  const std::string text = with_line_feeds(source);
  return Lexer(text, origin).run();
}

}  // namespace spillway
