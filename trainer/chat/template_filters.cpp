// The filters, tests and functions of the template language, with the parameters that Jinja (for tojson, the reference) gives
// them.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "trainer/chat/template_call.h"
#include "trainer/chat/template_json.h"
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
Value as_text(const Value& value) { return value.is_text() ? value : Value(printed(value)); }

Value like(const Value& text, std::string made) {
  check_text_size(made.size());
  return {std::move(made), text.kind()};
}

Value trim(const TemplateCall& call) {
  const Value text = as_text(call.self());
  return like(text, std::string(call.is_given_at(0) ? strip_characters(text.text(), TextSide::both, call.text_at(0))
                                                    : strip_space(text.text(), TextSide::both)));
}

template <std::string (*cased)(std::string_view)>
Value with_case(const TemplateCall& call) {
  const Value text = as_text(call.self());
  return like(text, cased(text.text()));
}

Value string(const TemplateCall& call) { return as_text(call.self()); }

Value safe(const TemplateCall& call) { return {printed(call.self()), Kind::markup}; }

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
  auto made = replace_text(printed(call.self()), printed(call.needed(0)), printed(call.needed(1)), most, kLongestTemplateText);
  if (!made) check_text_size(kLongestTemplateText + 1);
  return std::move(*made);
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

// A path to a part of each item, "a.0.b", as map, join and selectattr take it; a number is a position.
class AttributePath {
 public:
  explicit AttributePath(const Value& attribute) {
    if (attribute.is_text()) {
      for (const std::string_view part : split_at(attribute.text(), ".", -1)) {
        const bool is_number = !part.empty() && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
        std::int64_t at = 0;
        if (is_number && std::from_chars(part.data(), part.data() + part.size(), at).ec != std::errc())
          throw TemplateProblem{"an attribute with a number of more than 64 bits"};
        parts_.push_back(is_number ? Value(at) : Value(part));
      }
    } else if (!attribute.is(Kind::none)) {
      parts_.push_back(attribute);
    }
  }
  Value of(Value item, const Value& otherwise = nullptr) const {
    for (const Value& part : parts_) {
      item = item_of(item, part);
      if (!item.is_defined() && !otherwise.is(Kind::none)) item = otherwise;
    }
    return item;
  }

 private:
  Value::Items parts_;
};

Value join(const TemplateCall& call) {
  Value::Items items = items_with_limits(call.self(), call.work());
  if (call.is_given_at(1)) {
    const AttributePath path(call.needed(1));
    for (Value& item : items) item = path.of(item);
  }
  return joined_text(items, call.given(0) != nullptr ? Value(printed(call.needed(0))) : Value(""), call.work());
}

// The arguments after the first `taken`, for the filter or test that the call names.
TemplateArguments arguments_behind(const TemplateCall& call, std::size_t taken) {
  TemplateArguments rest = call.all();
  rest.values.erase(rest.values.begin(), rest.values.begin() + static_cast<std::ptrdiff_t>(taken));
  return rest;
}

const TemplateSignature& named_callee(const Value& name, std::string_view of,
                                      const TemplateSignature* (*find)(std::string_view)) {
  const TemplateSignature* const found = name.is_text() ? find(name.text()) : nullptr;
  if (found == nullptr)
    throw TemplateProblem{
        fmt::format("{} by {}, which is not in this version", of, name.is_text() ? in_quotes(name.text()) : kind_name(name))};
  return *found;
}

Value map(const TemplateCall& call) {
  if (!is_true(call.self())) return Value::sequence(Kind::iterator, {});
  Value::Items made = items_with_limits(call.self(), call.work());
  leave_iterator(call.self());
  if (call.all().values.empty()) {
    static const TemplateSignature kByAttribute = {
        "the filter map", "map", {{"attribute", Is::needed}, {"default"}}, Names::may_be_used, nullptr};
    const TemplateCall by_attribute(kByAttribute, call.self(), call.all(), call.work());
    const AttributePath path(by_attribute.needed(0));
    for (Value& item : made) item = path.of(item, by_attribute.given(1) != nullptr ? by_attribute.needed(1) : Value(nullptr));
  } else {
    const TemplateSignature& filter = named_callee(call.all().values[0], "the filter map", find_template_filter);
    const TemplateArguments arguments = arguments_behind(call, 1);
    for (Value& item : made) item = call_template(filter, item, arguments, call.work());
  }
  return Value::sequence(Kind::iterator, std::move(made));
}

enum class Keeps : std::uint8_t { what_is_so, what_is_not };
enum class Looks : std::uint8_t { at_item, at_attribute };
template <Keeps keeps, Looks looks>
Value select(const TemplateCall& call) {
  if (!is_true(call.self())) return Value::sequence(Kind::iterator, {});
  const Value::Items& given = call.all().values;
  constexpr std::size_t kTest = looks == Looks::at_attribute ? 1 : 0;
  if (given.size() < kTest) throw TemplateProblem{"the filters selectattr and rejectattr without an attribute"};
  const AttributePath path(kTest == 1 ? given[0] : Value(nullptr));
  const TemplateSignature* const test =
      given.size() > kTest ? &named_callee(given[kTest], "the filter select or its like", find_template_test) : nullptr;
  if (test == nullptr && !call.all().names.empty())
    throw TemplateProblem{fmt::format("the filter select or its like with {}=, and without a test", call.all().names[0])};
  const TemplateArguments arguments = test != nullptr ? arguments_behind(call, kTest + 1) : TemplateArguments();
  Value::Items kept;
  for (const Value& item : items_with_limits(call.self(), call.work())) {
    const Value looked_at = path.of(item);
    const bool is_so = is_true(test != nullptr ? call_template(*test, looked_at, arguments, call.work()) : looked_at);
    if (is_so == (keeps == Keeps::what_is_so)) kept.push_back(item);
  }
  leave_iterator(call.self());
  return Value::sequence(Kind::iterator, std::move(kept));
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
  using enum Keeps;
  using enum Looks;
  static const std::vector<TemplateSignature> kFilters = {
      {"the filter trim", "trim", {{"chars"}}, Names::may_be_used, trim},
      {"the filter length", "length", {}, Names::are_positions, length},
      {"the filter count", "count", {}, Names::are_positions, length},
      {"the filter tojson", "tojson", {{"ensure_ascii"}, {"indent"}, {"separators"}, {"sort_keys"}}, Names::may_be_used, tojson},
      {"the filter join", "join", {{"d"}, {"attribute"}}, Names::may_be_used, join},
      {"the filter lower", "lower", {}, Names::may_be_used, with_case<lower_case>},
      {"the filter upper", "upper", {}, Names::may_be_used, with_case<upper_case>},
      {"the filter capitalize", "capitalize", {}, Names::may_be_used, with_case<capitalized>},
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
      {"the filter map", "map", {}, Names::go_on, map},
      {"the filter select", "select", {}, Names::go_on, select<what_is_so, at_item>},
      {"the filter reject", "reject", {}, Names::go_on, select<what_is_not, at_item>},
      {"the filter selectattr", "selectattr", {}, Names::go_on, select<what_is_so, at_attribute>},
      {"the filter rejectattr", "rejectattr", {}, Names::go_on, select<what_is_not, at_attribute>},
  };
  const auto found = std::ranges::find(kFilters, name, &TemplateSignature::name);
  return found != kFilters.end() ? &*found : nullptr;
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
  };
  const auto found = std::ranges::find(kFunctions, name, &TemplateSignature::name);
  return found != kFunctions.end() ? &*found : nullptr;
}

}  // namespace spillway
