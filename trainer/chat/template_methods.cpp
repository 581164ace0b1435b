// Members of values, and the methods that templates call.
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "trainer/chat/template_call.h"
#include "trainer/chat/template_text.h"

namespace spillway {
namespace {

using Value = TemplateValue;
using Kind = TemplateValue::Kind;
using Is = TemplateParameter::Is;
using Names = TemplateSignature::Names;

template <TextSide side>
Value strip(const TemplateCall& call) {
  const std::string& text = call.self().text();
  return part_of_text(call.self(), call.is_given_at(0) ? strip_characters(text, side, call.text_at(0)) : strip_space(text, side));
}

template <std::string (*cased)(std::string_view)>
Value with_case(const TemplateCall& call) {
  return made_text(call, cased(call.self().text()));
}

enum class End : std::uint8_t { start, end };
template <End end>
Value has_at(const TemplateCall& call) {
  const std::string_view text = call.self().text();
  const auto has = [&](std::string_view part) { return end == End::start ? text.starts_with(part) : text.ends_with(part); };
  if (!call.needed(0).is(Kind::tuple)) return has(call.text_at(0));
  return std::ranges::any_of(call.needed(0).sequence().items, [&](const Value& part) {
    if (!part.is_text()) throw TemplateProblem{fmt::format(".startswith() or .endswith() with a tuple of {}", kind_name(part))};
    return has(part.text());
  });
}

Value replace(const TemplateCall& call) {
  const bool escapes = call.self().is(Kind::markup) && !call.needed(1).is(Kind::markup);
  auto made = replace_text(call.self().text(), call.text_at(0), escapes ? escaped_markup(call.text_at(1)) : call.text_at(1),
                           call.whole_at(2, -1), kLongestTemplateText);
  if (!made) check_text_size(kLongestTemplateText + 1);
  return *made == call.self().text() ? call.self() : made_text(call, std::move(*made));
}

Value split(const TemplateCall& call) {
  const std::string& text = call.self().text();
  const std::int64_t asked = call.whole_at(1, -1);
  const std::int64_t most = asked < 0 ? kMostTemplateItems : std::min(asked, kMostTemplateItems);
  if (call.is_given_at(0) && call.text_at(0).empty()) throw TemplateProblem{".split() by an empty text"};
  Value::Items parts;
  for (const std::string_view part : call.is_given_at(0) ? split_at(text, call.text_at(0), most) : split_at_space(text, most))
    parts.push_back(part_of_text(call.self(), part));
  check_item_count(parts.size());
  return Value::list(std::move(parts));
}

Value join(const TemplateCall& call) {
  const Value::Items items = items_with_limits(call.needed(0), call.work());
  for (const Value& item : items) {
    if (!item.is_text() && !call.self().is(Kind::markup)) throw TemplateProblem{fmt::format(".join() of {}", kind_name(item))};
  }
  return joined_text(items, call.self(), call.work());
}

Value get(const TemplateCall& call) {
  const Value* const found = find_entry(call.self(), call.needed(0));
  return found != nullptr ? *found : call.given(1) != nullptr ? *call.given(1) : Value(nullptr);
}

template <Kind kind>
Value view(const TemplateCall& call) {
  const Value::Entries& entries = entries_of(call.self());
  call.work().spend(static_cast<std::int64_t>(entries.size()) * 64);
  if (kind == Kind::pairs) return pairs_of(call.self(), kind);
  Value::Items items;
  for (const auto& [key, value] : entries) items.push_back(kind == Kind::keys ? key : value);
  return Value::sequence(kind, std::move(items));
}

Value cycle(const TemplateCall& call) {
  if (call.all().values.empty() || !call.all().names.empty()) throw TemplateProblem{"loop.cycle() of nothing, or with names"};
  return call.all().values[call.self().loop().index0 % call.all().values.size()];
}

const std::vector<TemplateSignature>& text_methods() {
  static const std::vector<TemplateSignature> kMethods = {
      {".strip()", "strip", {{"chars"}}, Names::are_positions, strip<TextSide::both>},
      {".lstrip()", "lstrip", {{"chars"}}, Names::are_positions, strip<TextSide::left>},
      {".rstrip()", "rstrip", {{"chars"}}, Names::are_positions, strip<TextSide::right>},
      {".upper()", "upper", {}, Names::are_positions, with_case<upper_case>},
      {".lower()", "lower", {}, Names::are_positions, with_case<lower_case>},
      {".capitalize()", "capitalize", {}, Names::are_positions, with_case<capitalized>},
      {".title()", "title", {}, Names::are_positions, with_case<titled>},
      {".startswith()",
       "startswith",
       {{"prefix", Is::needed}, {"start", Is::unknown}, {"end", Is::unknown}},
       Names::are_positions,
       has_at<End::start>},
      {".endswith()",
       "endswith",
       {{"suffix", Is::needed}, {"start", Is::unknown}, {"end", Is::unknown}},
       Names::are_positions,
       has_at<End::end>},
      {".replace()", "replace", {{"old", Is::needed}, {"new", Is::needed}, {"count"}}, Names::are_positions, replace},
      {".split()", "split", {{"sep"}, {"maxsplit"}}, Names::may_be_used, split},
      {".join()", "join", {{"iterable", Is::needed}}, Names::are_positions, join},
  };
  return kMethods;
}

const std::vector<TemplateSignature>& dictionary_methods() {
  static const std::vector<TemplateSignature> kMethods = {
      {".get()", "get", {{"key", Is::needed}, {"default"}}, Names::are_positions, get},
      {".items()", "items", {}, Names::are_positions, view<Kind::pairs>},
      {".keys()", "keys", {}, Names::are_positions, view<Kind::keys>},
      {".values()", "values", {}, Names::are_positions, view<Kind::values>},
  };
  return kMethods;
}

const std::vector<TemplateSignature>& loop_methods() {
  static const std::vector<TemplateSignature> kMethods = {{"loop.cycle()", "cycle", {}, Names::go_on, cycle}};
  return kMethods;
}

// Names that Python defines on a kind of value. They win over keys, whether this version has them or not. The reference's sandbox
// keeps the `hidden` ones from templates, so they are not defined.
struct PythonNames {
  std::string_view known;  // each name between spaces
  std::string_view hidden = " ";
};

PythonNames python_names(Kind kind) {
  switch (kind) {
    case Kind::text:
    case Kind::markup:
      return {
          " capitalize casefold center count encode endswith expandtabs find format format_map index isalnum isalpha isascii "
          "isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper join ljust lower lstrip "
          "maketrans partition removeprefix removesuffix replace rfind rindex rjust rpartition rsplit rstrip split "
          "splitlines startswith strip swapcase title translate upper zfill "};
    case Kind::dictionary: return {" copy fromkeys get items keys values ", " clear pop popitem setdefault update "};
    case Kind::list: return {" copy count index ", " append clear extend insert pop remove reverse sort "};
    case Kind::tuple: return {" count index "};
    case Kind::range: return {" count index start step stop "};
    case Kind::boolean:
    case Kind::integer:
    case Kind::large_integer:
      return {" as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag is_integer numerator real to_bytes "};
    case Kind::real: return {" as_integer_ratio conjugate from_number fromhex hex imag is_integer real "};
    case Kind::keys:
    case Kind::values:
    case Kind::pairs: return {" isdisjoint mapping "};
    case Kind::iterator: return {" close send throw gi_running gi_suspended gi_yieldfrom "};
    case Kind::loop: return {" changed cycle "};
    default: return {" "};
  }
}

bool has_name(std::string_view names, std::string_view name) {
  return name.find(' ') == name.npos && names.find(fmt::format(" {} ", name)) != names.npos;
}

Value loop_member(const TemplateLoop& loop, std::string_view name) {
  const std::size_t size = loop.items.size(), at = loop.index0;
  if (name == "index") return at + 1;
  if (name == "index0") return at;
  if (name == "first") return at == 0;
  if (name == "last") return at + 1 == size;
  if (name == "length") return size;
  if (name == "revindex") return size - at;
  if (name == "revindex0") return size - at - 1;
  if (name == "depth") return 1;
  if (name == "depth0") return 0;
  if (name == "previtem" && at > 0) return loop.items[at - 1];
  if (name == "nextitem" && at + 1 < size) return loop.items[at + 1];
  return {};
}

enum class Found : std::uint8_t { nothing, hidden, value };
Found python_member(const Value& value, const std::string& name, Value& found) {
  if (name.starts_with("__") && name.ends_with("__"))
    throw TemplateProblem{fmt::format("the member {}, which is not in this version", in_quotes(name))};
  if (value.is(Kind::markup) && (name == "escape" || name == "unescape" || name == "striptags"))
    throw TemplateProblem{fmt::format(".{} of what | safe made, which is not in this version", name)};
  if (value.is(Kind::method) || value.is(Kind::function))
    throw TemplateProblem{fmt::format("the member {} of a {}", in_quotes(name), kind_name(value))};
  const auto [known, hidden] = python_names(value.kind());
  if (has_name(hidden, name)) return Found::hidden;
  if (has_name(known, name)) {
    found = Value::method(value, name);
    return Found::value;
  }
  if (value.is(Kind::loop)) found = loop_member(value.loop(), name);
  if (value.is(Kind::space)) {
    const Value::Entries& entries = value.space().entries;
    const auto entry =
        std::ranges::find_if(entries, [&](const Value::Entry& each) { return are_equal(each.first, Value(name)); });
    if (entry != entries.end()) found = entry->second;
  }
  return found.is_defined() ? Found::value : Found::nothing;
}

Value at_index(const Value& value, const Value& key) {
  const std::int64_t size =
      value.is_text() ? count_characters(value.text()) : static_cast<std::int64_t>(value.sequence().items.size());
  const std::int64_t at = key.integer() < 0 ? key.integer() + size : key.integer();
  if (at < 0 || at >= size) return {};
  if (!value.is_text()) return value.sequence().items[static_cast<std::size_t>(at)];
  return part_of_text(value, text_between(value.text(), at, at + 1));
}

}  // namespace

const TemplateSignature& template_method(const Value& of, std::string_view name) {
  static const std::vector<TemplateSignature> kNone;
  const std::vector<TemplateSignature>& methods = of.is_text()              ? text_methods()
                                                  : of.is(Kind::dictionary) ? dictionary_methods()
                                                  : of.is(Kind::loop)       ? loop_methods()
                                                                            : kNone;
  const auto found = std::ranges::find(methods, name, &TemplateSignature::name);
  if (found == methods.end())
    throw TemplateProblem{fmt::format(".{}() of {}, which is not in this version", name, kind_name(of))};
  return *found;
}

Value member_of(const Value& value, const std::string& name) {
  if (!value.is_defined()) throw TemplateProblem{fmt::format("\"{}\" of what is not defined", name)};
  Value found;
  if (python_member(value, name, found) != Found::nothing || !value.is(Kind::dictionary)) return found;
  const Value* const entry = find_entry(value, Value(name));
  return entry != nullptr ? *entry : Value();
}

Value item_of(const Value& value, const Value& key) {
  if (!value.is_defined()) throw TemplateProblem{"an item of what is not defined"};
  const bool is_indexed = value.is_text() || value.is(Kind::list) || value.is(Kind::tuple) || value.is(Kind::range);
  if (is_indexed && key.is_whole()) return at_index(value, key);
  if (value.is(Kind::dictionary) && is_hashable(key)) {
    if (const Value* const entry = find_entry(value, key)) return *entry;
  }
  Value found;
  if (key.is_text()) python_member(value, key.text(), found);
  return found;
}

}  // namespace spillway
