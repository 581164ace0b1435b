// Values as Python prints them: str() and repr().
#include <fmt/core.h>
#include <utf8proc.h>

#include <array>
#include <charconv>
#include <cmath>

#include "trainer/chat/template_limits.h"
#include "trainer/chat/template_value.h"
#include "trainer/text/utf8.h"

namespace spillway {
namespace {

using Value = TemplateValue;
using Kind = TemplateValue::Kind;

// str.isprintable() of a character.
bool is_printable(std::int32_t c) {
  if (c < 0x7f) return c >= ' ';
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

// Writes repr() of values, which lists and dictionaries print of what they hold.
class Printer {
 public:
  std::string print(const Value& value) {
    add(value);
    return std::move(out_);
  }

 private:
  void add(const Value& value) {
    if (out_.size() > kLongestTemplateText)
      throw TemplateProblem{fmt::format("text of more than {} bytes", kLongestTemplateText)};
    switch (value.kind()) {
      case Kind::undefined: out_ += "Undefined"; return;
      case Kind::text: return add_text(value.text());
      case Kind::markup:
        out_ += "Markup(";
        add_text(value.text());
        out_ += ')';
        return;
      case Kind::list: return add_items(value, "[", "]");
      case Kind::tuple: return add_items(value, "(", value.sequence().items.size() == 1 ? ",)" : ")");
      case Kind::keys: return add_items(value, "dict_keys([", "])");
      case Kind::values: return add_items(value, "dict_values([", "])");
      case Kind::pairs: return add_items(value, "dict_items([", "])");
      case Kind::dictionary: return add_entries(entries_of(value));
      default: out_ += printed(value); return;
    }
  }
  void add_items(const Value& value, std::string_view open, std::string_view close) {
    out_ += open;
    bool is_first = true;
    for (const Value& item : value.sequence().items) {
      if (!std::exchange(is_first, false)) out_ += ", ";
      add(item);
    }
    out_ += close;
  }
  void add_entries(const Value::Entries& entries) {
    out_ += '{';
    bool is_first = true;
    for (const auto& [key, value] : entries) {
      if (!std::exchange(is_first, false)) out_ += ", ";
      add(key);
      out_ += ": ";
      add(value);
    }
    out_ += '}';
  }
  void add_text(std::string_view text) {
    const bool has_quotes = text.find('\'') != text.npos && text.find('"') == text.npos;
    const char quote = has_quotes ? '"' : '\'';
    out_ += quote;
    while (!text.empty()) {
      const CodePoint c = decode_utf8(text.data());
      add_character(c.value, text.substr(0, static_cast<std::size_t>(c.bytes)), quote);
      text.remove_prefix(static_cast<std::size_t>(c.bytes));
    }
    out_ += quote;
  }
  void add_character(std::int32_t c, std::string_view bytes, char quote) {
    if (c == quote || c == '\\') {
      out_ += '\\';
      out_ += bytes;
    } else if (is_printable(c)) {
      out_ += bytes;
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out_ += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else {
      out_ += c < 0x100 ? fmt::format("\\x{:02x}", c) : c < 0x10000 ? fmt::format("\\u{:04x}", c) : fmt::format("\\U{:08x}", c);
    }
  }

  std::string out_;
};

}  // namespace

std::string printed(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined: return "";
    case Kind::none: return "None";
    case Kind::boolean: return value.boolean() ? "True" : "False";
    case Kind::integer: return std::to_string(value.integer());
    case Kind::real: return printed_real(value.real());
    case Kind::large_integer:
    case Kind::text:
    case Kind::markup: return value.text();
    case Kind::list:
    case Kind::tuple:
    case Kind::keys:
    case Kind::values:
    case Kind::pairs:
    case Kind::dictionary: return Printer().print(value);
    default:
      throw TemplateProblem{fmt::format(
          "{} {} is to be printed, allowed: text, or | tojson",
          std::string_view("aeiou").find(kind_name(value)[0]) != std::string_view::npos ? "an" : "a", kind_name(value))};
  }
}

// Prints as Python's repr(): the fewest digits that give the same number, with an exponent below 1e-4 and from 1e16 on.
std::string printed_real(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 64> buffer;
  const double size = std::abs(value);
  const bool is_fixed = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 is_fixed ? std::chars_format::fixed : std::chars_format::scientific)
                       .ptr;
  std::string text(buffer.data(), end);
  return is_fixed && text.find('.') == text.npos ? text + ".0" : text;
}

}  // namespace spillway
