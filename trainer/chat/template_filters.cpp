// The filters, tests and functions of the template language, with the parameters that Jinja (for tojson, the reference) gives
// them.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "trainer/chat/template_call.h"
#include "trainer/chat/template_json.h"
#include "trainer/chat/template_list_filters.h"
#include "trainer/chat/template_text.h"
#include "trainer/text/tokenizer_unicode.h"
#include "trainer/text/utf8.h"

namespace spillway {
namespace {

using Value = TemplateValue;
using Kind = TemplateValue::Kind;
using Is = TemplateParameter::Is;
using Names = TemplateSignature::Names;

// Filters on text see other values in their printed form. Markup stays markup.
Value like(const Value& text, std::string made) {
  check_text_size(made.size());
  return {std::move(made), text.kind()};
}

Value trim(const TemplateCall& call) {
  const Value text = as_text(call.self());
  return part_of_text(text, call.is_given_at(0) ? strip_characters(text.text(), TextSide::both, call.text_at(0))
                                                : strip_space(text.text(), TextSide::both));
}

template <std::string (*cased)(std::string_view)>
Value with_case(const TemplateCall& call) {
  const Value text = as_text(call.self());
  return like(text, cased(text.text()));
}

Value string(const TemplateCall& call) { return as_text(call.self()); }

Value safe(const TemplateCall& call) { return {as_text(call.self()).marked_text(), Kind::markup}; }

Value length(const TemplateCall& call) { return length_of(call.self()); }

Value list(const TemplateCall& call) { return Value::list(items_with_limits(call.self(), call.work())); }

Value first(const TemplateCall& call) { return first_of(call.self()); }

Value last(const TemplateCall& call) {
  const Value& value = call.self();
  if (value.is_text()) return item_of(value, Value(-1));
  if (value.is_sequence() && !value.is(Kind::iterator))
    return value.sequence().items.empty() ? Value() : value.sequence().items.back();
  if (value.is(Kind::dictionary)) return entries_of(value).empty() ? Value() : entries_of(value).back().first;
  if (!value.is_defined()) return {};
  throw TemplateProblem{fmt::format("last of {}", kind_name(value))};
}

Value reverse(const TemplateCall& call) {
  const Value& value = call.self();
  if (value.is_text()) {
    std::string made;
    for (std::string_view rest = value.text(); !rest.empty();) {
      const auto bytes = static_cast<std::size_t>(decode_last_utf8(rest).bytes);
      made += rest.substr(rest.size() - bytes);
      rest.remove_suffix(bytes);
    }
    return like(value, std::move(made));
  }
  Value::Items items = items_with_limits(value, call.work());
  std::ranges::reverse(items);
  return Value::sequence(value.is(Kind::iterator) ? Kind::list : Kind::iterator, std::move(items));
}

Value items(const TemplateCall& call) {
  if (!call.self().is_defined()) return Value::sequence(Kind::iterator, {});
  if (!call.self().is(Kind::dictionary)) throw TemplateProblem{fmt::format("items of {}", kind_name(call.self()))};
  call.work().spend(static_cast<std::int64_t>(entries_of(call.self()).size()) * 64);
  return pairs_of(call.self(), Kind::iterator);
}

Value otherwise(const TemplateCall& call) {
  const bool stays = call.self().is_defined() && (!call.is_true_at(1) || is_true(call.self()));
  return stays ? call.self() : call.given(0) != nullptr ? call.needed(0) : Value("");
}

Value replace(const TemplateCall& call) {
  const std::int64_t most = call.is_given_at(2) ? call.whole_at(2, -1) : -1;
  const Value text = as_text(call.self()), from = as_text(call.needed(0)), to = as_text(call.needed(1));
  call.work().spend(from.weight() + to.weight());
  auto made = replace_text(text.text(), from.text(), to.text(), most, kLongestTemplateText);
  if (!made) check_text_size(kLongestTemplateText + 1);
  return *made == text.text() ? Value(text.marked_text(), Kind::text) : Value(std::move(*made));
}

// A whole number as Python's int() reads it, but of ASCII digits only.
std::optional<Value> whole_of(std::string_view text) {
  std::string digits;
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) text.remove_prefix(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_between = i > 0 && i + 1 < text.size() && text[i - 1] != '_';
    if (text[i] == '_' && is_between) continue;
    if (text[i] < '0' || text[i] > '9') return std::nullopt;
    digits += text[i];
  }
  if (digits.empty()) return std::nullopt;
  if (is_negative) digits.insert(0, "-");
  std::int64_t whole = 0;
  if (std::from_chars(digits.data(), digits.data() + digits.size(), whole).ec != std::errc())
    throw TemplateProblem{"int of a number of more than 64 bits"};
  return Value(whole);
}

Value whole_of_real(double real, const Value& otherwise) {
  if (std::isnan(real)) return otherwise;
  if (std::abs(real) >= 9223372036854775808.0) throw TemplateProblem{"int of a number of more than 64 bits"};
  return static_cast<std::int64_t>(real);
}

// Reads "1e3" and "4.7" as Python's float() does.
Value whole_of_real_text(std::string_view text, const Value& otherwise) {
  std::string number(text.starts_with('+') ? text.substr(1) : text);
  const bool has_groups = std::erase(number, '_') > 0;
  const bool has_two_signs = text.starts_with('+') && number.starts_with('-');
  double real = 0;
  const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), real);
  const bool is_number = stop == number.data() + number.size() && error != std::errc::invalid_argument;
  if (!is_number || has_two_signs || number.find('(') != number.npos) return otherwise;
  if (has_groups || error == std::errc::result_out_of_range)
    throw TemplateProblem{"int of a number that is out of range, or has _ in it"};
  return std::isinf(real) ? otherwise : whole_of_real(real, otherwise);
}

Value whole(const TemplateCall& call) {
  const Value& value = call.self();
  const Value otherwise = call.given(0) != nullptr ? call.needed(0) : Value(0);
  if (!value.is_defined()) throw TemplateProblem{"int of what is not defined"};
  if (value.is(Kind::large_integer)) return value;
  if (value.is_whole()) return value.integer();
  if (value.is(Kind::real)) return whole_of_real(value.real(), otherwise);
  if (!value.is_text()) return otherwise;
  const std::string_view text = strip_space(value.text(), TextSide::both);
  const bool is_ascii = std::ranges::none_of(text, [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
  const std::vector<std::string_view> characters = is_ascii ? std::vector<std::string_view>() : characters_of(text);
  if (std::ranges::any_of(characters, [](std::string_view c) { return c.size() > 1 && is_number(decode_utf8(c.data()).value); }))
    throw TemplateProblem{"int of digits that are not ASCII, which is not in this version"};
  if (const std::optional<Value> found = whole_of(text)) return *found;
  return whole_of_real_text(text, otherwise);
}

Value tojson(const TemplateCall& call) {
  TemplateJsonStyle style;
  if (call.is_true_at(0)) style.escapes = TemplateJsonStyle::Escapes::all_but_ascii;
  if (call.is_given_at(1)) {
    constexpr std::int64_t kWidest = 1 << 20;  // spaces: a wider indent makes more text than the limit
    const bool is_text = call.needed(1).is_text();
    style.indent = is_text ? call.text_at(1) : std::string(std::clamp<std::int64_t>(call.whole_at(1, 0), 0, kWidest), ' ');
    if (!is_text && call.whole_at(1, 0) > kWidest) throw TemplateProblem{"tojson with an indent of more than 1048576"};
    style.between_items = ",";
  }
  if (call.is_given_at(2)) {
    const Value& both = call.needed(2);
    const bool is_pair = (both.is(Kind::tuple) || both.is(Kind::list)) && both.sequence().items.size() == 2 &&
                         std::ranges::all_of(both.sequence().items, &Value::is_text);
    if (!is_pair) throw TemplateProblem{"tojson with separators that are not two texts"};
    style.between_items = both.sequence().items[0].text();
    style.after_key = both.sequence().items[1].text();
  }
  if (call.is_true_at(3)) style.order = TemplateJsonStyle::Order::by_key;
  call.work().spend(call.self().weight());
  return write_template_json(call.self(), style, kLongestTemplateText);
}

template <Kind... kinds>
Value is_any(const TemplateCall& call) {
  return (call.self().is(kinds) || ...);
}
Value is_defined(const TemplateCall& call) { return call.self().is_defined(); }
Value is_number_of_any_kind(const TemplateCall& call) { return call.self().is_number(); }
Value is_iterable(const TemplateCall& call) {
  return call.self().is_text() || call.self().is_sequence() || call.self().is(Kind::dictionary) || call.self().is(Kind::loop) ||
         !call.self().is_defined();
}
template <bool what>
Value is_exactly(const TemplateCall& call) {
  return call.self().is(Kind::boolean) && call.self().boolean() == what;
}
Value is_equal(const TemplateCall& call) {
  call.work().spend(std::min(call.self().weight(), call.needed(0).weight()));
  return are_equal(call.self(), call.needed(0));
}
Value is_in(const TemplateCall& call) {
  call.work().spend(call.needed(0).weight());
  return contains(call.needed(0), call.self());
}

Value range(const TemplateCall& call) {
  const bool has_first = call.given(1) != nullptr;
  const std::int64_t first = has_first ? call.whole_at(0, 0) : 0, last = call.whole_at(has_first ? 1 : 0, 0),
                     step = call.whole_at(2, 1);
  if (step == 0) throw TemplateProblem{"range in steps of 0"};
  Value::Items made;
  for (std::int64_t at = first; step > 0 ? at < last : at > last;) {
    if (made.size() == static_cast<std::size_t>(kLongestTemplateRange))
      throw TemplateProblem{fmt::format("range of more than {} items", kLongestTemplateRange)};
    made.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  call.work().spend(static_cast<std::int64_t>(made.size()) * 64);
  return Value::sequence(Kind::range, std::move(made));
}

// The entries for dict() and namespace(): those of a mapping, then the named arguments.
Value::Entries given_entries(const TemplateCall& call, std::string_view what) {
  Value::Entries entries;
  if (call.all().values.size() > 1) throw TemplateProblem{fmt::format("{} of several values", what)};
  if (!call.all().values.empty()) {
    const Value& whole = call.all().values[0];
    if (!whole.is(Kind::dictionary)) throw TemplateProblem{fmt::format("{} of {}", what, kind_name(whole))};
    entries = entries_of(whole);
  }
  for (std::size_t i = 0; i < call.all().names.size(); ++i) entries.emplace_back(call.all().names[i], call.all().named[i]);
  call.work().spend(static_cast<std::int64_t>(entries.size()) * 64);
  return entries;
}

Value dictionary(const TemplateCall& call) { return Value::dictionary(given_entries(call, "dict()")); }

Value space(const TemplateCall& call) {
  constexpr std::int64_t kBytesOfSpace = 64 << 10;  // namespaces live until the conversation ends: this cost bounds their number
  call.work().spend(kBytesOfSpace);
  Value::Entries entries = entries_of(Value::dictionary(given_entries(call, "namespace()")));
  for (const auto& [name, value] : entries) {
    if (name.is_text() && name.text().starts_with('_')) throw TemplateProblem{"a name in a namespace that begins with _"};
  }
  return Value::space(std::make_shared<TemplateSpace>(TemplateSpace{.entries = std::move(entries)}));
}

}  // namespace

const TemplateSignature* find_template_filter(std::string_view name) {
  static const std::vector<TemplateSignature> kFilters = {
      {"the filter trim", "trim", {{"chars"}}, Names::may_be_used, trim},
      {"the filter length", "length", {}, Names::are_positions, length},
      {"the filter count", "count", {}, Names::are_positions, length},
      {"the filter tojson", "tojson", {{"ensure_ascii"}, {"indent"}, {"separators"}, {"sort_keys"}}, Names::may_be_used, tojson},
      {"the filter lower", "lower", {}, Names::may_be_used, with_case<lower_case>},
      {"the filter upper", "upper", {}, Names::may_be_used, with_case<upper_case>},
      {"the filter capitalize", "capitalize", {}, Names::may_be_used, with_case<capitalized>},
      {"the filter title", "title", {}, Names::may_be_used, with_case<titled_by_space>},
      {"the filter first", "first", {}, Names::may_be_used, first},
      {"the filter last", "last", {}, Names::may_be_used, last},
      {"the filter list", "list", {}, Names::may_be_used, list},
      {"the filter string", "string", {}, Names::may_be_used, string},
      {"the filter int", "int", {{"default"}, {"base", Is::unknown}}, Names::may_be_used, whole},
      {"the filter default", "default", {{"default_value"}, {"boolean"}}, Names::may_be_used, otherwise},
      {"the filter d", "d", {{"default_value"}, {"boolean"}}, Names::may_be_used, otherwise},
      {"the filter replace", "replace", {{"old", Is::needed}, {"new", Is::needed}, {"count"}}, Names::may_be_used, replace},
      {"the filter items", "items", {}, Names::may_be_used, items},
      {"the filter safe", "safe", {}, Names::may_be_used, safe},
      {"the filter reverse", "reverse", {}, Names::may_be_used, reverse},
  };
  const auto found = std::ranges::find(kFilters, name, &TemplateSignature::name);
  return found != kFilters.end() ? &*found : find_template_list_filter(name);
}

const TemplateSignature* find_template_test(std::string_view name) {
  static const std::vector<TemplateParameter> kOther = {{"b", Is::needed}};
  static const std::vector<TemplateSignature> kTests = {
      {"the test defined", "defined", {}, Names::may_be_used, is_defined},
      {"the test undefined", "undefined", {}, Names::may_be_used, is_any<Kind::undefined>},
      {"the test none", "none", {}, Names::may_be_used, is_any<Kind::none>},
      {"the test string", "string", {}, Names::may_be_used, is_any<Kind::text, Kind::markup>},
      {"the test number", "number", {}, Names::may_be_used, is_number_of_any_kind},
      {"the test integer", "integer", {}, Names::may_be_used, is_any<Kind::integer, Kind::large_integer>},
      {"the test float", "float", {}, Names::may_be_used, is_any<Kind::real>},
      {"the test boolean", "boolean", {}, Names::may_be_used, is_any<Kind::boolean>},
      {"the test mapping", "mapping", {}, Names::may_be_used, is_any<Kind::dictionary>},
      {"the test iterable", "iterable", {}, Names::may_be_used, is_iterable},
      {"the test sequence",
       "sequence",
       {},
       Names::may_be_used,
       is_any<Kind::text, Kind::markup, Kind::list, Kind::tuple, Kind::range, Kind::dictionary, Kind::undefined>},
      {"the test true", "true", {}, Names::may_be_used, is_exactly<true>},
      {"the test false", "false", {}, Names::may_be_used, is_exactly<false>},
      {"the test equalto", "equalto", kOther, Names::are_positions, is_equal},
      {"the test eq", "eq", kOther, Names::are_positions, is_equal},
      {"the test ==", "==", kOther, Names::are_positions, is_equal},
      {"the test in", "in", {{"seq", Is::needed}}, Names::may_be_used, is_in},
  };
  const auto found = std::ranges::find(kTests, name, &TemplateSignature::name);
  return found != kTests.end() ? &*found : nullptr;
}

const TemplateSignature* find_template_function(std::string_view name) {
  static const std::vector<TemplateSignature> kFunctions = {
      {"range()", "range", {{"start", Is::needed}, {"stop"}, {"step"}}, Names::are_positions, range},
      {"dict()", "dict", {}, Names::go_on, dictionary},
      {"namespace()", "namespace", {}, Names::go_on, space},
      // Its message is no problem of the template: the renderer throws it.
      {"raise_exception()", "raise_exception", {{"message", Is::needed}}, Names::may_be_used, nullptr},
      {"strftime_now()", "strftime_now", {{"format", Is::needed}}, Names::may_be_used, nullptr},  // the renderer knows the date
  };
  const auto found = std::ranges::find(kFunctions, name, &TemplateSignature::name);
  return found != kFunctions.end() ? &*found : nullptr;
}

}  // namespace spillway
