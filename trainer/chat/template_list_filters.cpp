// Filters of lists and objects, with the parameters that Jinja gives them.
#include "trainer/chat/template_list_filters.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "trainer/chat/template_text.h"

namespace spillway {
namespace {

using Value = TemplateValue;
using Kind = TemplateValue::Kind;
using Is = TemplateParameter::Is;
using Names = TemplateSignature::Names;

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
  const Value between = call.given(0) != nullptr ? as_text(call.needed(0)) : Value("");
  call.work().spend(between.weight());
  return joined_text(items, Value(between.text()), call.work());
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

constexpr std::int64_t kBytesOfKey = 256;  // cost of a comparison, beside that of the bytes

// Lower case, unless a filter is asked to tell the cases apart.
Value sort_key(const Value& value, bool is_case_sensitive) {
  return value.is_text() && !is_case_sensitive ? Value(lower_case(value.text())) : value;
}

// Python compares lists of keys: what is equal has no order that could lack.
bool is_before(const Value::Items& left, const Value::Items& right, TemplateWork& work) {
  for (std::size_t i = 0; i < left.size(); ++i) {
    work.spend(kBytesOfKey + std::min(left[i].weight(), right[i].weight()));
    if (!are_equal(left[i], right[i])) return order_of(left[i], right[i], "sort") < 0;
  }
  return false;
}

struct Keyed {
  Value::Items keys;
  Value item;
};

Value sorted(std::vector<Keyed> all, bool is_reversed, TemplateWork& work) {
  std::ranges::stable_sort(all, [&](const Keyed& left, const Keyed& right) {
    return is_reversed ? is_before(right.keys, left.keys, work) : is_before(left.keys, right.keys, work);
  });
  Value::Items items;
  for (Keyed& each : all) items.push_back(std::move(each.item));
  return Value::list(std::move(items));
}

Value sort(const TemplateCall& call) {
  std::vector<AttributePath> paths;
  if (call.is_given_at(2) && call.needed(2).is_text()) {
    for (const std::string_view part : split_at(call.text_at(2), ",", -1)) paths.emplace_back(Value(part));
  } else {
    paths.emplace_back(call.is_given_at(2) ? call.needed(2) : Value(nullptr));
  }
  std::vector<Keyed> all;
  for (Value& item : items_with_limits(call.self(), call.work())) {
    Keyed keyed;
    for (const AttributePath& path : paths) keyed.keys.push_back(sort_key(path.of(item), call.is_true_at(1)));
    keyed.item = std::move(item);
    all.push_back(std::move(keyed));
  }
  return sorted(std::move(all), call.is_true_at(0), call.work());
}

Value dictsort(const TemplateCall& call) {
  if (!call.self().is(Kind::dictionary)) throw TemplateProblem{fmt::format("dictsort of {}", kind_name(call.self()))};
  const std::string by = call.given(1) != nullptr ? call.text_at(1) : "key";
  if (by != "key" && by != "value")
    throw TemplateProblem{fmt::format("dictsort by {}, allowed: key, value", in_quotes(by)), true};
  const Value pairs = pairs_of(call.self(), Kind::list);
  std::vector<Keyed> all;
  for (const Value& pair : pairs.sequence().items) {
    const Value& key = pair.sequence().items[by == "key" ? 0 : 1];
    all.push_back({.keys = {sort_key(key, call.is_true_at(0))}, .item = pair});
  }
  return sorted(std::move(all), call.is_true_at(2), call.work());
}

Value unique(const TemplateCall& call) {
  const AttributePath path(call.is_given_at(1) ? call.needed(1) : Value(nullptr));
  Value::Items kept;
  Value::Items seen;
  for (const Value& item : items_with_limits(call.self(), call.work())) {
    const Value key = sort_key(path.of(item), call.is_true_at(0));
    if (!is_hashable(key)) throw TemplateProblem{fmt::format("unique of {}", kind_name(key))};
    call.work().spend(kBytesOfKey + static_cast<std::int64_t>(seen.size()) * key.weight());
    if (std::ranges::any_of(seen, [&](const Value& other) { return are_equal(other, key); })) continue;
    seen.push_back(key);
    kept.push_back(item);
  }
  leave_iterator(call.self());
  return Value::sequence(Kind::iterator, std::move(kept));
}

}  // namespace

const TemplateSignature* find_template_list_filter(std::string_view name) {
  using enum Keeps;
  using enum Looks;
  static const std::vector<TemplateSignature> kFilters = {
      {"the filter join", "join", {{"d"}, {"attribute"}}, Names::may_be_used, join},
      {"the filter map", "map", {}, Names::go_on, map},
      {"the filter select", "select", {}, Names::go_on, select<what_is_so, at_item>},
      {"the filter reject", "reject", {}, Names::go_on, select<what_is_not, at_item>},
      {"the filter selectattr", "selectattr", {}, Names::go_on, select<what_is_so, at_attribute>},
      {"the filter rejectattr", "rejectattr", {}, Names::go_on, select<what_is_not, at_attribute>},
      {"the filter sort", "sort", {{"reverse"}, {"case_sensitive"}, {"attribute"}}, Names::may_be_used, sort},
      {"the filter dictsort", "dictsort", {{"case_sensitive"}, {"by"}, {"reverse"}}, Names::may_be_used, dictsort},
      {"the filter unique", "unique", {{"case_sensitive"}, {"attribute"}}, Names::may_be_used, unique},
  };
  const auto found = std::ranges::find(kFilters, name, &TemplateSignature::name);
  return found != kFilters.end() ? &*found : nullptr;
}

}  // namespace spillway
