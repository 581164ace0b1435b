#include "trainer/chat/template_json.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "trainer/chat/template_limits.h"
#include "trainer/chat/template_text.h"
#include "trainer/text/utf8.h"

namespace spillway {
namespace {

using nlohmann::json;
using Value = TemplateValue;
using Kind = TemplateValue::Kind;

constexpr std::size_t kMostDigits = 4300;  // most digits of a whole number, as in Python

// Builds the value as the parser meets it, so that whole numbers of any size stay exact.
class JsonReader final : public nlohmann::json_sax<json> {
 public:
  Value result;
  std::string problem;

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value <= std::numeric_limits<std::int64_t>::max()) return add(static_cast<std::int64_t>(value));
    return add({std::to_string(value), Kind::large_integer});
  }
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") != text.npos) return add(value);
    if (text.size() > kMostDigits) return refuse(fmt::format("a number of more than {} digits", kMostDigits));
    return add({text, Kind::large_integer});
  }
  bool binary(binary_t&) override { return true; }  // JSON text has none
  bool string(string_t& value) override { return add(std::move(value)); }
  bool start_object(std::size_t) override { return open(Kind::dictionary); }
  bool start_array(std::size_t) override { return open(Kind::list); }
  bool key(string_t& name) override {
    open_.back().key = std::move(name);
    return true;
  }
  bool end_object() override {
    Value made = Value::dictionary(std::move(open_.back().entries));
    return close(std::move(made));
  }
  bool end_array() override {
    Value made = Value::list(std::move(open_.back().items));
    return close(std::move(made));
  }
  bool parse_error(std::size_t byte, const std::string&, const nlohmann::detail::exception&) override {
    return refuse(fmt::format("no valid JSON at byte {}", byte));
  }

 private:
  struct Open {
    Kind kind;
    std::string key;
    Value::Items items;
    Value::Entries entries;
  };

  bool refuse(std::string found) {
    if (problem.empty()) problem = std::move(found);
    return false;
  }
  bool open(Kind kind) {
    if (open_.size() >= kDeepestTemplateValue)
      return refuse(fmt::format("values more than {} deep within each other", kDeepestTemplateValue));
    open_.push_back({.kind = kind, .key = {}, .items = {}, .entries = {}});
    return true;
  }
  bool close(Value made) {
    open_.pop_back();
    return add(std::move(made));
  }
  bool add(Value value) {
    if (open_.empty())
      result = std::move(value);
    else if (open_.back().kind == Kind::list)
      open_.back().items.push_back(std::move(value));
    else
      open_.back().entries.emplace_back(std::move(open_.back().key), std::move(value));
    return true;
  }

  std::vector<Open> open_;
};

class JsonWriter {
 public:
  JsonWriter(const TemplateJsonStyle& style, std::size_t longest) : style_(style), longest_(longest) {}

  std::string write(const Value& value) {
    add(value, 0);
    return std::move(out_);
  }

 private:
  void add(const Value& value, int depth) {
    if (out_.size() > longest_) throw TemplateProblem{fmt::format("JSON of more than {} bytes", longest_)};
    switch (value.kind()) {
      case Kind::text:
      case Kind::markup: return add_text(value.text());
      case Kind::none: out_ += "null"; return;
      case Kind::boolean: out_ += value.boolean() ? "true" : "false"; return;
      case Kind::integer:
      case Kind::large_integer: out_ += printed(value); return;
      case Kind::real: out_ += number(value.real()); return;
      case Kind::list:
      case Kind::tuple: return add_items(value.sequence().items, depth);
      case Kind::dictionary: return add_entries(value, depth);
      default: throw TemplateProblem{fmt::format("tojson of {}", kind_name(value))};
    }
  }
  void add_items(const Value::Items& items, int depth) {
    out_ += '[';
    for (std::size_t i = 0; i < items.size(); ++i) {
      begin_item(i, depth);
      add(items[i], depth + 1);
    }
    end_items(items.size(), depth);
    out_ += ']';
  }
  void add_entries(const Value& dictionary, int depth) {
    Value::Entries entries = entries_of(dictionary);
    if (style_.order == TemplateJsonStyle::Order::by_key) {
      std::ranges::sort(entries, [](const Value::Entry& left, const Value::Entry& right) {
        return order_of(left.first, right.first, "tojson(sort_keys) of keys that are") < 0;
      });
    }
    out_ += '{';
    for (std::size_t i = 0; i < entries.size(); ++i) {
      begin_item(i, depth);
      add_text(key_text(entries[i].first));
      out_ += style_.after_key;
      add(entries[i].second, depth + 1);
    }
    end_items(entries.size(), depth);
    out_ += '}';
  }
  static std::string key_text(const Value& key) {
    switch (key.kind()) {
      case Kind::none: return "null";
      case Kind::boolean: return key.boolean() ? "true" : "false";
      case Kind::real: return number(key.real());
      case Kind::text:
      case Kind::markup:
      case Kind::integer:
      case Kind::large_integer: return printed(key);
      default: throw TemplateProblem{fmt::format("tojson of a key that is {}", kind_name(key))};
    }
  }
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    return std::isinf(value) ? value < 0 ? "-Infinity" : "Infinity" : printed_real(value);
  }
  void begin_item(std::size_t i, int depth) {
    if (i > 0) out_ += style_.between_items;
    new_line(depth + 1);
  }
  void end_items(std::size_t count, int depth) {
    if (count > 0) new_line(depth);
  }
  void new_line(int depth) {
    if (!style_.indent) return;
    if (style_.indent->size() * static_cast<std::size_t>(depth) > longest_)
      throw TemplateProblem{fmt::format("JSON of more than {} bytes", longest_)};
    out_ += '\n';
    for (int i = 0; i < depth; ++i) out_ += *style_.indent;
  }

  void add_text(std::string_view text) {
    out_ += '"';
    while (!text.empty()) {
      const CodePoint c = decode_utf8(text.data());
      add_character(c.value, text.substr(0, static_cast<std::size_t>(c.bytes)));
      text.remove_prefix(static_cast<std::size_t>(c.bytes));
    }
    out_ += '"';
  }
  void add_character(std::int32_t c, std::string_view bytes) {
    constexpr std::string_view kShort = "\"\"\\\\\nn\rr\tt\bb\ff";  // pairs of a character and its short form
    for (std::size_t i = 0; i < kShort.size(); i += 2) {
      if (c != kShort[i]) continue;
      out_ += '\\';
      out_ += kShort[i + 1];
      return;
    }
    const bool escapes_all = style_.escapes == TemplateJsonStyle::Escapes::all_but_ascii;
    if (c >= ' ' && (c < 0x7f || !escapes_all)) {
      out_ += bytes;
    } else if (c < 0x10000) {
      out_ += fmt::format("\\u{:04x}", c);
    } else {
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((c - 0x10000) >> 10), 0xdc00 + ((c - 0x10000) & 0x3ff));
    }
  }

  const TemplateJsonStyle& style_;
  std::size_t longest_;
  std::string out_;
};

}  // namespace

Value read_template_json(std::string_view text) {
  JsonReader reader;
  if (!json::sax_parse(text, &reader)) throw TemplateProblem{reader.problem};
  return std::move(reader.result);
}

std::string write_template_json(const Value& value, const TemplateJsonStyle& style, std::size_t longest) {
  return JsonWriter(style, longest).write(value);
}

}  // namespace spillway
