#include "trainer/chat/template_value.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "files/json_text.h"
#include "trainer/chat/template_text.h"

namespace spillway {

using Value = TemplateValue;
using Kind = TemplateValue::Kind;

namespace {

constexpr std::int64_t kWeightOfOne = 16;  // bytes
constexpr std::size_t kFewEntries = 16;    // up to here a linear search is faster than a hash

// Refuses values that are not data, so that containers hold neither each other nor values that change.
void check_is_data(const Value& value) {
  if (value.kind() >= Kind::loop) throw TemplateProblem{fmt::format("a {} within a value", kind_name(value))};
}

std::int64_t sum_of_weights(std::int64_t left, std::int64_t right) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(left, right, &sum) ? std::numeric_limits<std::int64_t>::max() : sum;
}

}  // namespace

struct TemplateDictionary {
  Value::Entries entries;
  std::unordered_map<std::string_view, std::size_t> texts;  // index of keys that are text, if there are many
  int depth = 1;
  std::int64_t weight = 0;

  // entries.size() if the key is missing.
  std::size_t index_of(const Value& key) const {
    if (!texts.empty() && key.is_text()) {
      const auto found = texts.find(key.text());
      return found != texts.end() ? found->second : entries.size();
    }
    const auto found = std::ranges::find_if(entries, [&](const Value::Entry& entry) { return are_equal(entry.first, key); });
    return static_cast<std::size_t>(found - entries.begin());
  }
  const Value* find(const Value& key) const {
    const std::size_t index = index_of(key);
    return index < entries.size() ? &entries[index].second : nullptr;
  }
};

Value Value::sequence(Kind kind, Items items) {
  auto made = std::make_shared<TemplateSequence>();
  made->weight = kWeightOfOne;
  for (const Value& item : items) {
    check_is_data(item);
    made->depth = std::max(made->depth, item.depth() + 1);
    made->weight = sum_of_weights(made->weight, item.weight());
  }
  made->items = std::move(items);
  return {kind, std::move(made)};
}

Value Value::dictionary(Entries entries) {
  auto made = std::make_shared<TemplateDictionary>();
  made->weight = kWeightOfOne;
  const bool is_large = entries.size() > kFewEntries;
  made->entries.reserve(entries.size());
  for (Entry& entry : entries) {
    if (!is_hashable(entry.first)) throw TemplateProblem{fmt::format("a key that is {}", kind_name(entry.first))};
    check_is_data(entry.first);
    check_is_data(entry.second);
    made->depth = std::max({made->depth, entry.first.depth() + 1, entry.second.depth() + 1});
    made->weight = sum_of_weights(made->weight, sum_of_weights(entry.first.weight(), entry.second.weight()));
    if (const std::size_t index = made->index_of(entry.first); index < made->entries.size()) {
      made->entries[index].second = std::move(entry.second);
      continue;
    }
    made->entries.push_back(std::move(entry));
    const Value& key = made->entries.back().first;
    if (is_large && key.is_text()) made->texts.emplace(key.text(), made->entries.size() - 1);
  }
  return {Kind::dictionary, std::shared_ptr<const TemplateDictionary>(std::move(made))};
}

Value Value::method(TemplateValue of, std::string name) {
  return {Kind::method, std::make_shared<const TemplateMethod>(TemplateMethod{.of = std::move(of), .name = std::move(name)})};
}

Value Value::macro(TemplateMacro macro) { return {Kind::macro, std::make_shared<const TemplateMacro>(macro)}; }

Value part_of_text(const Value& of, std::string_view part) {
  const TemplateText& whole = of.marked_text();
  if (part.size() == whole.text.size()) return of;
  TemplateText made{std::string(part), {}};
  if (whole.generated.empty() || part.empty()) return {std::move(made), of.kind()};
  const auto first = static_cast<std::size_t>(part.data() - whole.text.data()), last = first + part.size();
  for (const auto& [begin, end] : whole.generated) {
    if (end >= first && begin <= last) made.generated.emplace_back(std::max(begin, first) - first, std::min(end, last) - first);
  }
  return {std::move(made), of.kind()};
}

Value as_text(const Value& value) { return value.is_text() ? value : Value(printed(value)); }

Value escaped_text(const Value& value) {
  if (value.is(Kind::markup)) return value;
  const Value text = as_text(value);
  std::string escaped = escaped_markup(text.text());
  return escaped == text.text() ? Value(text.marked_text(), Kind::markup) : Value(std::move(escaped), Kind::markup);
}

void append_text(TemplateText& to, const TemplateText& text) {
  const std::size_t at = to.text.size();
  to.text += text.text;
  for (const auto& [begin, end] : text.generated) to.generated.emplace_back(at + begin, at + end);
}

const void* Value::identity() const {
  return std::visit(
      []<typename T>(const T& held) -> const void* {
        if constexpr (requires { held.get(); })
          return held.get();
        else
          return nullptr;
      },
      held_);
}

int Value::depth() const {
  if (is_sequence()) return sequence().depth;
  return is(Kind::dictionary) ? dictionary().depth : 0;
}

std::int64_t Value::weight() const {
  if (is_sequence()) return sequence().weight;
  if (is(Kind::dictionary)) return dictionary().weight;
  return is_text() || is(Kind::large_integer) ? kWeightOfOne + static_cast<std::int64_t>(text().size()) : kWeightOfOne;
}

const Value* find_entry(const Value& dictionary, const Value& key) {
  if (!is_hashable(key)) throw TemplateProblem{fmt::format("a key that is {}", kind_name(key))};
  return dictionary.dictionary().find(key);
}

const Value::Entries& entries_of(const Value& dictionary) { return dictionary.dictionary().entries; }

bool is_hashable(const Value& value) {
  switch (value.kind()) {
    case Kind::list:
    case Kind::dictionary:
    case Kind::keys:
    case Kind::pairs: return false;
    case Kind::tuple: return std::ranges::all_of(value.sequence().items, is_hashable);
    default: return true;
  }
}

bool is_true(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::none: return false;
    case Kind::boolean:
    case Kind::integer: return value.integer() != 0;
    case Kind::real: return value.real() != 0;
    case Kind::text:
    case Kind::markup: return !value.text().empty();
    case Kind::list:
    case Kind::tuple:
    case Kind::range:
    case Kind::keys:
    case Kind::values:
    case Kind::pairs:
    case Kind::dictionary: return length_of(value) > 0;
    default: return true;
  }
}

namespace {

// Compares exactly, as Python does: neither number is rounded to the other's type.
int order_of_whole_and_real(std::int64_t whole, double real) {
  constexpr double kBeyond = 9223372036854775808.0;  // 2^63
  if (real >= kBeyond) return -1;
  if (real < -kBeyond) return 1;
  const double floor = std::floor(real);
  const auto below = static_cast<std::int64_t>(floor);
  if (whole != below) return whole < below ? -1 : 1;
  return real > floor ? -1 : 0;
}

constexpr int kNoOrder = 2;  // one of the numbers is NaN

int order_of_numbers(const Value& left, const Value& right) {
  if (left.is_whole() && right.is_whole())
    return left.integer() < right.integer() ? -1 : left.integer() > right.integer() ? 1 : 0;
  if ((left.is(Kind::real) && std::isnan(left.real())) || (right.is(Kind::real) && std::isnan(right.real()))) return kNoOrder;
  if (left.is_whole()) return order_of_whole_and_real(left.integer(), right.real());
  if (right.is_whole()) return -order_of_whole_and_real(right.integer(), left.real());
  return left.real() < right.real() ? -1 : left.real() > right.real() ? 1 : 0;
}

bool are_equal_numbers(const Value& left, const Value& right) {
  if (!left.is(Kind::large_integer) && !right.is(Kind::large_integer)) return order_of_numbers(left, right) == 0;
  if (left.is(Kind::real) || right.is(Kind::real))
    throw TemplateProblem{"a whole number of more than 64 bits compared with one that is not whole"};
  return left.kind() == right.kind() && left.text() == right.text();
}

}  // namespace

bool are_equal(const Value& left, const Value& right) {
  if (left.is_text() && right.is_text()) return left.text() == right.text();
  if (left.is_number() && right.is_number()) return are_equal_numbers(left, right);
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Kind::undefined:
    case Kind::none: return true;
    case Kind::list:
    case Kind::tuple:
    case Kind::range: return std::ranges::equal(left.sequence().items, right.sequence().items, are_equal);
    case Kind::dictionary: {
      const Value::Entries& entries = entries_of(left);
      return entries.size() == entries_of(right).size() && std::ranges::all_of(entries, [&](const Value::Entry& entry) {
               const Value* const found = right.dictionary().find(entry.first);
               return found != nullptr && are_equal(entry.second, *found);
             });
    }
    case Kind::function: return left.text() == right.text();
    case Kind::keys:
    case Kind::pairs:
    case Kind::method: throw TemplateProblem{fmt::format("== of {} and {}", kind_name(left), kind_name(right))};
    default: return left.identity() == right.identity();
  }
}

int order_of(const Value& left, const Value& right, std::string_view what_for) {
  if (left.is_text() && right.is_text()) return left.text().compare(right.text());
  const bool are_large = left.is(Kind::large_integer) || right.is(Kind::large_integer);
  if (!left.is_number() || !right.is_number() || are_large)
    throw TemplateProblem{fmt::format("{} of {} and {}", what_for, kind_name(left), kind_name(right))};
  const int order = order_of_numbers(left, right);
  if (order == kNoOrder) throw TemplateProblem{fmt::format("{} of what is not a number (nan)", what_for)};
  return order;
}

namespace {

void check_is_not_left(const Value& iterator) {
  if (iterator.is(Kind::iterator) && iterator.sequence().is_left)
    throw TemplateProblem{
        "an iterator (what map, select and their like give) that is read twice, allowed: | list makes an array of it"};
}

}  // namespace

bool contains(const Value& whole, const Value& part) {
  if (whole.is_text() && part.is_text()) return find_text(whole.text(), part.text()) != std::string_view::npos;
  if (whole.is(Kind::dictionary)) return find_entry(whole, part) != nullptr;
  if (!whole.is_defined()) return false;
  if (!whole.is_sequence()) throw TemplateProblem{fmt::format("in of {} and {}", kind_name(part), kind_name(whole))};
  check_is_not_left(whole);
  TemplateSequence& sequence = whole.sequence();
  const bool is_iterator = whole.is(Kind::iterator);  // consumes the items that it compares
  std::size_t at = is_iterator ? sequence.taken : 0;
  while (at < sequence.items.size() && !are_equal(sequence.items[at], part)) ++at;
  const bool is_found = at < sequence.items.size();
  if (is_iterator) sequence.taken = at + (is_found ? 1 : 0);
  return is_found;
}

Value::Items items_of(const Value& value) {
  Value::Items items;
  check_is_not_left(value);
  if (value.is(Kind::iterator)) {
    TemplateSequence& sequence = value.sequence();
    items.assign(sequence.items.begin() + static_cast<std::ptrdiff_t>(sequence.taken), sequence.items.end());
    sequence.taken = sequence.items.size();
  } else if (value.is_sequence()) {
    items = value.sequence().items;
  } else if (value.is(Kind::dictionary)) {
    for (const Value::Entry& entry : entries_of(value)) items.push_back(entry.first);
  } else if (value.is_text()) {
    for (const std::string_view character : characters_of(value.text())) items.emplace_back(character);
  } else if (value.is_defined()) {
    throw TemplateProblem{fmt::format("a loop over {}", kind_name(value))};
  }
  return items;
}

std::int64_t length_of(const Value& value) {
  if (value.is_text()) return count_characters(value.text());
  if (value.is(Kind::dictionary)) return static_cast<std::int64_t>(entries_of(value).size());
  if (value.is(Kind::loop)) return static_cast<std::int64_t>(value.loop().items.size());
  if (value.is_sequence() && !value.is(Kind::iterator)) return static_cast<std::int64_t>(value.sequence().items.size());
  if (!value.is_defined()) return 0;
  throw TemplateProblem{fmt::format("length of {}", kind_name(value))};
}

Value first_of(const Value& value) {
  if (value.is_text()) return value.text().empty() ? Value() : Value(text_between(value.text(), 0, 1));
  if (value.is(Kind::dictionary)) return entries_of(value).empty() ? Value() : entries_of(value).front().first;
  if (!value.is_defined()) return {};
  if (!value.is_sequence()) throw TemplateProblem{fmt::format("first of {}", kind_name(value))};
  check_is_not_left(value);
  TemplateSequence& sequence = value.sequence();
  const std::size_t at = sequence.taken;
  if (value.is(Kind::iterator) && at < sequence.items.size()) ++sequence.taken;
  return at < sequence.items.size() ? sequence.items[at] : Value();
}

void leave_iterator(const Value& value) {
  if (value.is(Kind::iterator)) value.sequence().is_left = true;
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  const std::string shown = quoted_json(text);
  return shown.size() <= kLongest ? shown : fmt::format("a text of {} bytes", text.size());
}

std::string_view kind_name(const Value& value) {
  constexpr std::array<std::string_view, 21> kNames = {"what is not defined",
                                                       "none",
                                                       "boolean",
                                                       "number",
                                                       "number of more than 64 bits",
                                                       "number",
                                                       "string",
                                                       "string",
                                                       "array",
                                                       "tuple",
                                                       "range",
                                                       "keys view",
                                                       "values view",
                                                       "items view",
                                                       "iterator (what map, select and their like give; | list makes an array)",
                                                       "object",
                                                       "namespace",
                                                       "loop",
                                                       "method",
                                                       "function",
                                                       "macro"};
  return kNames[static_cast<std::size_t>(value.kind())];
}

}  // namespace spillway
