#include "trainer/chat/template_operators.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "trainer/chat/template_call.h"
#include "trainer/chat/template_text.h"

namespace spillway {
namespace {

using Value = TemplateValue;
using Kind = TemplateValue::Kind;

[[noreturn]] void refuse(std::string_view op, const Value& left, const Value& right) {
  throw TemplateProblem{fmt::format("{} of {} and {}", op, kind_name(left), kind_name(right))};
}

Value chained(const Value& left, const Value& right, Kind kind, TemplateWork& work) {
  const std::size_t bytes = left.text().size() + right.text().size();
  check_text_size(bytes);
  work.spend(static_cast<std::int64_t>(bytes));
  TemplateText text;
  text.text.reserve(bytes);
  append_text(text, left.marked_text());
  append_text(text, right.marked_text());
  return {std::move(text), kind};
}

Value sum_of_texts(const Value& left, const Value& right, TemplateWork& work) {
  if (!left.is(Kind::markup) && !right.is(Kind::markup)) return chained(left, right, Kind::text, work);
  return chained(escaped_text(left), escaped_text(right), Kind::markup, work);
}

Value sum_of_sequences(const Value& left, const Value& right, TemplateWork& work) {
  Value::Items items = items_with_limits(left, work);
  const Value::Items more = items_with_limits(right, work);
  check_item_count(items.size() + more.size());
  items.insert(items.end(), more.begin(), more.end());
  return Value::sequence(left.kind(), std::move(items));
}

Value whole_result(std::string_view op, std::int64_t a, std::int64_t b) {
  const bool divides = op == "//" || op == "%";
  std::int64_t result = 0;
  bool overflows = divides && b == -1 && a == std::numeric_limits<std::int64_t>::min();
  if (op == "+") overflows = __builtin_add_overflow(a, b, &result);
  if (op == "-") overflows = __builtin_sub_overflow(a, b, &result);
  if (op == "*") overflows = __builtin_mul_overflow(a, b, &result);
  if (overflows) throw TemplateProblem{fmt::format("{} of {} and {} is too large", op, a, b)};
  // Python rounds quotients down.
  const bool is_rounded = divides && a % b != 0 && (a % b < 0) != (b < 0);
  if (op == "//") return a / b - (is_rounded ? 1 : 0);
  if (op == "%") return a % b + (is_rounded ? b : 0);
  return result;
}

Value arithmetic(std::string_view op, const Value& left, const Value& right) {
  constexpr std::int64_t kExact = std::int64_t{1} << 53;  // whole numbers up to this are exact as doubles
  const bool are_whole = left.is_whole() && right.is_whole();
  if ((op == "/" || op == "//" || op == "%") && !is_true(right)) throw TemplateProblem{fmt::format("{} by zero", op)};
  if (are_whole && op != "/") return whole_result(op, left.integer(), right.integer());
  const auto is_exact = [&](const Value& value) {
    return !value.is_whole() || (value.integer() <= kExact && value.integer() >= -kExact);
  };
  if (are_whole && !(is_exact(left) && is_exact(right)))
    throw TemplateProblem{fmt::format("{} of {} and {}, which are beyond 2^53", op, left.integer(), right.integer())};
  const double a = left.real(), b = right.real();
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "/") return a / b;
  throw TemplateProblem{fmt::format("{} of numbers that are not whole", op)};
}

// Cost of comparing: the smaller side for equality, all of the right side for `in`.
bool relation(std::string_view op, const Value& left, const Value& right, TemplateWork& work) {
  if (op == "in" || op == "not in") {
    work.spend(right.is(Kind::dictionary) ? 0 : right.weight());
    return contains(right, left) == (op == "in");
  }
  work.spend(std::min(left.weight(), right.weight()));
  if (op == "==" || op == "!=") return are_equal(left, right) == (op == "==");
  const int order = order_of(left, right, op);
  return op == "<" ? order < 0 : op == ">" ? order > 0 : op == "<=" ? order <= 0 : order >= 0;
}

}  // namespace

Value operate(std::string_view op, const Value& left, const Value& right, TemplateWork& work) {
  if (op == "in" || op == "not in" || op.find_first_of("<>=") != op.npos) return relation(op, left, right, work);
  if (op == "~") return chained(as_text(left), as_text(right), Kind::text, work);
  if (op == "+" && left.is_text() && right.is_text()) return sum_of_texts(left, right, work);
  const bool are_sequences = left.kind() == right.kind() && (left.is(Kind::list) || left.is(Kind::tuple));
  if (op == "+" && are_sequences) return sum_of_sequences(left, right, work);
  const bool are_large = left.is(Kind::large_integer) || right.is(Kind::large_integer);
  if (!left.is_number() || !right.is_number() || are_large) refuse(op, left, right);
  return arithmetic(op, left, right);
}

Value negative(const Value& value) {
  if (value.is(Kind::real)) return -value.real();
  if (!value.is_whole() || value.integer() == std::numeric_limits<std::int64_t>::min())
    throw TemplateProblem{fmt::format("- of {}", kind_name(value))};
  return -value.integer();
}

Value slice_of(const Value& whole, const Value& first, const Value& last, const Value& step, TemplateWork& work) {
  const bool is_indexed = whole.is_text() || whole.is(Kind::list) || whole.is(Kind::tuple) || whole.is(Kind::range);
  if (!is_indexed) throw TemplateProblem{fmt::format("a slice of {}", kind_name(whole))};
  for (const Value* const bound : {&first, &last, &step}) {
    if (!bound->is(Kind::none) && !bound->is_whole()) throw TemplateProblem{fmt::format("a slice by {}", kind_name(*bound))};
  }
  const std::int64_t size = length_of(whole);
  const auto bound = [&](const Value& value, std::int64_t missing, std::int64_t least, std::int64_t most) {
    if (value.is(Kind::none)) return missing;
    return std::clamp(value.integer() < 0 ? value.integer() + size : value.integer(), least, most);
  };
  constexpr std::int64_t kFarthest = std::int64_t{1} << 40;  // no text and no list is longer
  const std::int64_t by = step.is(Kind::none) ? 1 : std::clamp(step.integer(), -kFarthest, kFarthest);
  if (by == 0) throw TemplateProblem{"a slice in steps of 0"};
  const std::int64_t from = by > 0 ? bound(first, 0, 0, size) : bound(first, size - 1, -1, size - 1);
  const std::int64_t to = by > 0 ? bound(last, size, 0, size) : bound(last, -1, -1, size - 1);
  if (whole.is_text() && by == 1) {
    work.spend(whole.weight());
    return part_of_text(whole, text_between(whole.text(), from, to));
  }
  const Value::Items items = whole.is_text() ? items_with_limits(Value(whole.text()), work) : whole.sequence().items;
  Value::Items list;
  for (std::int64_t i = from; by > 0 ? i < to : i > to; i += by) list.push_back(items[static_cast<std::size_t>(i)]);
  work.spend(static_cast<std::int64_t>(list.size()) * 16);
  if (!whole.is_text()) return Value::sequence(whole.kind(), std::move(list));
  std::string text;
  for (const Value& character : list) text += character.text();
  return {std::move(text), whole.kind()};
}

}  // namespace spillway
