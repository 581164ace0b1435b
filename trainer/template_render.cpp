#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "memory/error.h"
#include "trainer/template_syntax.h"

namespace spillway {
namespace {

using Expression = TemplateExpression;
using Statement = TemplateStatement;
using Value = TemplateValue;

constexpr std::size_t kLongestResult = 256 << 20;  // bytes
constexpr std::int64_t kMostItems = 1 << 20;       // of range(), and of a list that is made
constexpr std::int64_t kMostSteps = 10'000'000;    // statements: a template that never ends is refused

constexpr std::array<std::string_view, 24> kFilters = {"trim",    "length", "count",   "tojson",     "join",       "lower",
                                                       "upper",   "first",  "last",    "list",       "string",     "int",
                                                       "default", "d",      "replace", "items",      "safe",       "capitalize",
                                                       "map",     "select", "reject",  "selectattr", "rejectattr", "reverse"};
constexpr std::array<std::string_view, 16> kTests = {"defined", "undefined", "none",    "string",   "number",   "integer",
                                                     "float",   "boolean",   "mapping", "iterable", "sequence", "true",
                                                     "false",   "equalto",   "eq",      "in"};

Value undefined() { return Value(Value::value_t::discarded); }
bool is_undefined(const Value& value) { return value.is_discarded(); }
const std::string& text_of(const Value& value) { return value.get_ref<const std::string&>(); }

bool is_true(const Value& value) {
  switch (value.type()) {
    case Value::value_t::discarded:
    case Value::value_t::null:
      return false;
    case Value::value_t::boolean:
      return value.get<bool>();
    case Value::value_t::string:
      return !text_of(value).empty();
    case Value::value_t::array:
    case Value::value_t::object:
      return !value.empty();
    default:
      return value != 0;
  }
}

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r') || (c >= '\x1c' && c <= '\x1f'); }

// Characters, not bytes: what Python counts and cuts by.
std::vector<std::string> characters_of(std::string_view text) {
  std::vector<std::string> all;
  for (const char c : text) {
    if (all.empty() || (static_cast<unsigned char>(c) & 0xc0U) != 0x80) all.emplace_back();
    all.back() += c;
  }
  return all;
}

enum class Side : std::uint8_t { both, left, right };
std::string stripped(std::string_view text, Side side, const std::optional<std::string>& characters) {
  const std::vector<std::string> which = characters ? characters_of(*characters) : std::vector<std::string>();
  // Bytes that go at one end of what is left.
  const auto goes = [&](bool at_front) -> std::size_t {
    if (text.empty()) return 0;
    if (!characters) return is_space(at_front ? text.front() : text.back()) ? 1 : 0;
    const auto found =
        std::ranges::find_if(which, [&](const std::string& c) { return at_front ? text.starts_with(c) : text.ends_with(c); });
    return found != which.end() ? found->size() : 0;
  };
  for (std::size_t bytes = 0; side != Side::right && (bytes = goes(true)) > 0;) text.remove_prefix(bytes);
  for (std::size_t bytes = 0; side != Side::left && (bytes = goes(false)) > 0;) text.remove_suffix(bytes);
  return std::string(text);
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  if (from.empty()) return text;
  for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
  return text;
}

// ASCII alone changes: a template changes the case of names of roles and the like.
std::string cased(std::string text, bool to_upper) {
  for (char& c : text)
    c = to_upper ? (c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c)
                 : (c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c);
  return text;
}

std::string json_text(const Value& value) { return value.dump(-1, ' ', false, Value::error_handler_t::replace); }

// As Python's json.dumps with ensure_ascii off: a space after each comma and colon.
void dump_json(const Value& value, int indent, int depth, std::string& out) {
  const auto line = [&](int level) {
    if (indent >= 0) out += '\n', out.append(static_cast<std::size_t>(indent * level), ' ');
  };
  if (!value.is_structured() || value.empty()) {
    out += json_text(value);
    return;
  }
  out += value.is_array() ? '[' : '{';
  bool is_first = true;
  for (auto item = value.begin(); item != value.end(); ++item) {
    if (!is_first) out += indent >= 0 ? "," : ", ";
    is_first = false;
    line(depth + 1);
    if (value.is_object()) out += json_text(item.key()) + ": ";
    dump_json(*item, indent, depth + 1, out);
  }
  line(depth);
  out += value.is_array() ? ']' : '}';
}

class Renderer {
 public:
  Renderer(const std::string& origin, const Value& variables) : origin_(origin), scopes_(1) {
    for (const auto& [name, value] : variables.items()) scopes_[0][name] = value;
  }

  std::string run(const TemplateBody& body) {
    std::string out;
    render(body, out);
    return out;
  }

 private:
  enum class Flow : std::uint8_t { goes_on, breaks, continues };

  [[noreturn]] void refuse(const Expression& at, const std::string& found) const {
    throw InputError(fmt::format("{}: line {}: {}", origin_, at.line, found));
  }

  Flow render(const TemplateBody& body, std::string& out) {
    for (const Statement& statement : body.statements) {
      if (++steps_ > kMostSteps)
        throw InputError(fmt::format("{}: does not end within {} statements of one conversation", origin_, kMostSteps));
      const Flow flow = render(statement, out);
      if (out.size() > kLongestResult)
        throw InputError(fmt::format("{}: makes more than {} bytes of one conversation", origin_, kLongestResult));
      if (flow != Flow::goes_on) return flow;
    }
    return Flow::goes_on;
  }
  Flow render(const Statement& statement, std::string& out) {
    switch (statement.kind) {
      case Statement::Kind::text:
        out += statement.text;
        return Flow::goes_on;
      case Statement::Kind::output: {
        Value own;
        out += printed(look(statement.expressions[0], own), statement.expressions[0]);
        return Flow::goes_on;
      }
      case Statement::Kind::branches: {
        std::size_t taken = 0;
        while (taken < statement.expressions.size() && !holds(statement.expressions[taken])) ++taken;
        return taken < statement.bodies.size() ? render(statement.bodies[taken], out) : Flow::goes_on;
      }
      case Statement::Kind::loop:
        return loop(statement, out);
      case Statement::Kind::set:
        assign(statement, value_of(statement.expressions[0]));
        return Flow::goes_on;
      case Statement::Kind::set_body: {
        std::string text;
        const Flow flow = render(statement.bodies[0], text);
        assign(statement, text);
        return flow;
      }
      case Statement::Kind::break_loop:
        return Flow::breaks;
      case Statement::Kind::continue_loop:
        return Flow::continues;
    }
    return Flow::goes_on;
  }

  void assign(const Statement& statement, Value value) {
    if (statement.names.size() == 1) {
      scopes_.back()[statement.names[0]] = std::move(value);
      return;
    }
    Value* const space = find(statement.names[0]);
    if (space == nullptr || !space->is_object())
      throw InputError(fmt::format("{}: sets {}.{}, and {} is no namespace", origin_, statement.names[0], statement.names[1],
                                   statement.names[0]));
    (*space)[statement.names[1]] = std::move(value);
  }

  Flow loop(const Statement& statement, std::string& out) {
    const Expression& over = statement.expressions[0];
    std::vector<Value> items = items_of(value_of(over), over);
    scopes_.emplace_back();
    if (statement.expressions.size() > 1) {
      std::erase_if(items, [&](const Value& item) {
        name_item(statement, item);
        return !holds(statement.expressions[1]);
      });
    }
    for (std::size_t i = 0; i < items.size(); ++i) {
      scopes_.back().clear();
      name_item(statement, items[i]);
      Value state = {{"index", i + 1},
                     {"index0", i},
                     {"first", i == 0},
                     {"last", i + 1 == items.size()},
                     {"length", items.size()},
                     {"revindex", items.size() - i},
                     {"revindex0", items.size() - i - 1}};
      if (i > 0) state["previtem"] = items[i - 1];
      if (i + 1 < items.size()) state["nextitem"] = items[i + 1];
      scopes_.back()["loop"] = std::move(state);
      if (render(statement.bodies[0], out) == Flow::breaks) break;
    }
    scopes_.pop_back();
    return items.empty() && statement.bodies.size() > 1 ? render(statement.bodies[1], out) : Flow::goes_on;
  }
  void name_item(const Statement& statement, const Value& item) {
    if (statement.names.size() == 1) {
      scopes_.back()[statement.names[0]] = item;
      return;
    }
    if (!item.is_array() || item.size() != statement.names.size())
      refuse(statement.expressions[0], fmt::format("an item has no {} parts", statement.names.size()));
    for (std::size_t i = 0; i < item.size(); ++i) scopes_.back()[statement.names[i]] = item[i];
  }
  std::vector<Value> items_of(const Value& value, const Expression& at) const {
    std::vector<Value> items;
    if (value.is_array()) {
      items.assign(value.begin(), value.end());
    } else if (value.is_object()) {
      for (auto item = value.begin(); item != value.end(); ++item) items.emplace_back(item.key());
    } else if (value.is_string()) {
      for (std::string& character : characters_of(text_of(value))) items.emplace_back(std::move(character));
    } else if (!is_undefined(value)) {
      refuse(at, fmt::format("a loop over {}", kind_of(value)));
    }
    return items;
  }

  Value* find(const std::string& name) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (const auto found = scope->find(name); found != scope->end()) return &found->second;
    }
    return nullptr;
  }
  static std::string_view kind_of(const Value& value) {
    return is_undefined(value) ? "what is not defined" : value.is_null() ? "none" : value.type_name();
  }

  std::string printed(const Value& value, const Expression& at) const {
    switch (value.type()) {
      case Value::value_t::discarded:
        return "";
      case Value::value_t::null:
        return "None";
      case Value::value_t::boolean:
        return value.get<bool>() ? "True" : "False";
      case Value::value_t::string:
        return text_of(value);
      case Value::value_t::array:
      case Value::value_t::object:
        refuse(at, fmt::format("an {} is to be printed, allowed: text, or | tojson", value.type_name()));
      default:
        return value.dump();
    }
  }

  bool holds(const Expression& expression) {
    Value own;
    return is_true(look(expression, own));
  }
  Value value_of(const Expression& expression) {
    Value own;
    const Value& found = look(expression, own);
    return &found == &own ? std::move(own) : found;
  }
  // What stands in a variable is not copied; anything else is made in `own`.
  const Value& look(const Expression& expression, Value& own) {
    switch (expression.kind) {
      case Expression::Kind::literal:
        return expression.value;
      case Expression::Kind::name: {
        const Value* const found = find(expression.name);
        return found ? *found : own = undefined();
      }
      case Expression::Kind::member:
      case Expression::Kind::index: {
        Value held;
        const Value& whole = look(expression.parts[0], held);
        const Value* const part =
            expression.kind == Expression::Kind::member ? member(whole, expression) : item(whole, expression, own);
        if (part == nullptr) return own = undefined();
        if (part == &own || &whole != &held) return *part;
        Value kept = *part;
        return own = std::move(kept);
      }
      default:
        return own = compute(expression);
    }
  }
  const Value* member(const Value& whole, const Expression& expression) const {
    if (is_undefined(whole)) refuse(expression, fmt::format("\"{}\" of what is not defined", expression.name));
    if (!whole.is_object()) return nullptr;
    const auto found = whole.find(expression.name);
    return found != whole.end() ? &*found : nullptr;
  }
  const Value* item(const Value& whole, const Expression& expression, Value& own) {
    const Value key = value_of(expression.parts[1]);
    if (is_undefined(whole)) refuse(expression, "an item of what is not defined");
    if (whole.is_object() && key.is_string()) {
      const auto found = whole.find(text_of(key));
      return found != whole.end() ? &*found : nullptr;
    }
    if (!key.is_number_integer()) return nullptr;
    const auto at = [&](std::size_t size) {
      const auto i = key.get<std::int64_t>();
      return static_cast<std::size_t>(i < 0 ? i + static_cast<std::int64_t>(size) : i);
    };
    if (whole.is_array()) return at(whole.size()) < whole.size() ? &whole[at(whole.size())] : nullptr;
    if (!whole.is_string()) return nullptr;
    const std::vector<std::string> characters = characters_of(text_of(whole));
    if (at(characters.size()) >= characters.size()) return nullptr;
    own = characters[at(characters.size())];
    return &own;
  }

  Value compute(const Expression& expression) {
    switch (expression.kind) {
      case Expression::Kind::negation:
        return !holds(expression.parts[0]);
      case Expression::Kind::minus: {
        const Value value = value_of(expression.parts[0]);
        if (value.is_number_integer()) return -value.get<std::int64_t>();
        if (!value.is_number()) refuse(expression, fmt::format("- of {}", kind_of(value)));
        return -value.get<double>();
      }
      case Expression::Kind::conditional:
        return value_of(expression.parts[holds(expression.parts[1]) ? 0 : 2]);
      case Expression::Kind::list: {
        Value list = Value::array();
        for (const Expression& part : expression.parts) list.push_back(value_of(part));
        return list;
      }
      case Expression::Kind::object: {
        Value object = Value::object();
        for (std::size_t i = 0; i + 1 < expression.parts.size(); i += 2)
          object[printed(value_of(expression.parts[i]), expression)] = value_of(expression.parts[i + 1]);
        return object;
      }
      case Expression::Kind::binary:
        return binary(expression);
      case Expression::Kind::slice:
        return slice(expression);
      case Expression::Kind::call:
        return call(expression);
      case Expression::Kind::filter:
        return filter(expression);
      case Expression::Kind::test: {
        Value own;
        const Value& value = look(expression.parts[0], own);
        return test(value, expression.name, expression.parts.size() > 1 ? value_of(expression.parts[1]) : undefined(),
                    expression);
      }
      default:
        return undefined();
    }
  }

  static bool are_equal(const Value& left, const Value& right) {
    if (is_undefined(left) || is_undefined(right)) return is_undefined(left) && is_undefined(right);
    return left == right;
  }
  bool contains(const Value& whole, const Value& part, const Expression& at) const {
    if (whole.is_string() && part.is_string()) return text_of(whole).find(text_of(part)) != std::string::npos;
    if (whole.is_object()) return part.is_string() && whole.contains(text_of(part));
    if (whole.is_array()) return std::ranges::any_of(whole, [&](const Value& item) { return are_equal(item, part); });
    if (is_undefined(whole)) return false;
    refuse(at, fmt::format("in of {} and {}", kind_of(part), kind_of(whole)));
  }
  std::string both(const std::string& left, const std::string& right, const Expression& at) const {
    if (left.size() + right.size() > kLongestResult) refuse(at, fmt::format("text of more than {} bytes", kLongestResult));
    return left + right;
  }
  Value binary(const Expression& expression) {
    const std::string& op = expression.name;
    Value left = value_of(expression.parts[0]);
    if (op == "and") return is_true(left) ? value_of(expression.parts[1]) : left;
    if (op == "or") return is_true(left) ? left : value_of(expression.parts[1]);
    Value right = value_of(expression.parts[1]);
    if (op == "==") return are_equal(left, right);
    if (op == "!=") return !are_equal(left, right);
    if (op == "in") return contains(right, left, expression);
    if (op == "not in") return !contains(right, left, expression);
    if (op == "~") return both(printed(left, expression), printed(right, expression), expression);
    if (left.is_string() && right.is_string()) {
      if (op == "+") return both(text_of(left), text_of(right), expression);
      const int order = text_of(left).compare(text_of(right));
      if (op == "<") return order < 0;
      if (op == ">") return order > 0;
      if (op == "<=") return order <= 0;
      if (op == ">=") return order >= 0;
    }
    if (op == "+" && left.is_array() && right.is_array()) {
      if (left.size() + right.size() > kMostItems) refuse(expression, fmt::format("a list of more than {} items", kMostItems));
      left.insert(left.end(), right.begin(), right.end());
      return left;
    }
    if (left.is_boolean()) left = static_cast<std::int64_t>(left.get<bool>());
    if (right.is_boolean()) right = static_cast<std::int64_t>(right.get<bool>());
    if (!left.is_number() || !right.is_number())
      refuse(expression, fmt::format("{} of {} and {}", op, kind_of(left), kind_of(right)));
    if (op == "<") return left < right;
    if (op == ">") return left > right;
    if (op == "<=") return left <= right;
    if (op == ">=") return left >= right;
    return arithmetic(expression, left, right);
  }
  Value arithmetic(const Expression& expression, const Value& left, const Value& right) const {
    const std::string& op = expression.name;
    const bool divides = op == "/" || op == "//" || op == "%";
    if (divides && right == 0) refuse(expression, fmt::format("{} by zero", op));
    if (left.is_number_integer() && right.is_number_integer() && op != "/") {
      const auto a = left.get<std::int64_t>(), b = right.get<std::int64_t>();
      std::int64_t result = 0;
      bool overflows = divides && b == -1 && a == INT64_MIN;
      if (op == "+") overflows = __builtin_add_overflow(a, b, &result);
      if (op == "-") overflows = __builtin_sub_overflow(a, b, &result);
      if (op == "*") overflows = __builtin_mul_overflow(a, b, &result);
      if (overflows) refuse(expression, fmt::format("{} of {} and {} is too large", op, a, b));
      // Python rounds down.
      const bool is_rounded = divides && a % b != 0 && (a % b < 0) != (b < 0);
      if (op == "//") return a / b - (is_rounded ? 1 : 0);
      if (op == "%") return a % b + (is_rounded ? b : 0);
      return result;
    }
    const auto a = left.get<double>(), b = right.get<double>();
    if (op == "+") return a + b;
    if (op == "-") return a - b;
    if (op == "*") return a * b;
    if (op == "/") return a / b;
    refuse(expression, fmt::format("{} of numbers that are not whole", op));
  }

  Value slice(const Expression& expression) {
    const Value whole = value_of(expression.parts[0]);
    const std::vector<std::string> characters = whole.is_string() ? characters_of(text_of(whole)) : std::vector<std::string>();
    if (!whole.is_string() && !whole.is_array()) refuse(expression, fmt::format("a slice of {}", kind_of(whole)));
    const auto size = static_cast<std::int64_t>(whole.is_string() ? characters.size() : whole.size());
    const auto bound = [&](std::size_t part, std::int64_t missing, std::int64_t least, std::int64_t most) {
      const Value value = value_of(expression.parts[part]);
      if (is_undefined(value) || value.is_null()) return missing;
      if (!value.is_number_integer()) refuse(expression, fmt::format("a slice by {}", kind_of(value)));
      const auto i = value.get<std::int64_t>();
      return std::clamp(i < 0 ? i + size : i, least, most);
    };
    const Value by = value_of(expression.parts[3]);
    const std::int64_t step = by.is_number_integer() ? by.get<std::int64_t>() : 1;
    if (step == 0 || step > kMostItems || step < -kMostItems) refuse(expression, fmt::format("a slice in steps of {}", step));
    const std::int64_t first = step > 0 ? bound(1, 0, 0, size) : bound(1, size - 1, -1, size - 1);
    const std::int64_t last = step > 0 ? bound(2, size, 0, size) : bound(2, -1, -1, size - 1);
    Value list = Value::array();
    std::string text;
    for (std::int64_t i = first; step > 0 ? i < last : i > last; i += step) {
      if (whole.is_string())
        text += characters[static_cast<std::size_t>(i)];
      else
        list.push_back(whole[static_cast<std::size_t>(i)]);
    }
    return whole.is_string() ? Value(text) : list;
  }

  Value call(const Expression& expression) {
    const Expression& callee = expression.parts[0];
    std::vector<Value> arguments;
    for (std::size_t i = 1; i < expression.parts.size(); ++i) arguments.push_back(value_of(expression.parts[i]));
    if (callee.kind == Expression::Kind::member) return method(expression, value_of(callee.parts[0]), callee.name, arguments);
    if (callee.kind != Expression::Kind::name) refuse(expression, "a call of a value");
    if (callee.name == "namespace" || callee.name == "dict") {
      Value object = !arguments.empty() && arguments[0].is_object() ? arguments[0] : Value::object();
      for (std::size_t i = 0; i < expression.named.size(); ++i) object[expression.names[i]] = value_of(expression.named[i]);
      return object;
    }
    if (callee.name == "raise_exception") {
      const std::string said = arguments.empty() ? "" : replaced(printed(arguments[0], expression), "\n", " ");
      throw InputError(fmt::format("{}: the template refuses the messages: {}", origin_, said));
    }
    if (callee.name == "range") return range(expression, arguments);
    refuse(expression, fmt::format("a call of {}, which is not in this version", callee.name));
  }
  Value range(const Expression& expression, const std::vector<Value>& arguments) const {
    if (arguments.empty() || !std::ranges::all_of(arguments, [](const Value& value) { return value.is_number_integer(); }))
      refuse(expression, "range of what are no whole numbers");
    const bool has_first = arguments.size() > 1;
    const auto first = has_first ? arguments[0].get<std::int64_t>() : 0, last = arguments[has_first ? 1 : 0].get<std::int64_t>();
    const std::int64_t step = arguments.size() > 2 ? arguments[2].get<std::int64_t>() : 1;
    Value list = Value::array();
    if (step == 0) refuse(expression, "range in steps of 0");
    for (std::int64_t i = first; step > 0 ? i < last : i > last; i += step) {
      if (list.size() >= kMostItems) refuse(expression, fmt::format("range of more than {} items", kMostItems));
      list.push_back(i);
    }
    return list;
  }

  Value method(const Expression& expression, const Value& self, const std::string& name, const std::vector<Value>& arguments) {
    const auto text_at = [&](std::size_t i) -> std::optional<std::string> {
      if (i >= arguments.size() || arguments[i].is_null()) return std::nullopt;
      if (!arguments[i].is_string()) refuse(expression, fmt::format(".{}() by {}", name, kind_of(arguments[i])));
      return text_of(arguments[i]);
    };
    if (self.is_string()) {
      const std::string& text = text_of(self);
      if (name == "strip") return stripped(text, Side::both, text_at(0));
      if (name == "lstrip") return stripped(text, Side::left, text_at(0));
      if (name == "rstrip") return stripped(text, Side::right, text_at(0));
      if (name == "upper") return cased(text, true);
      if (name == "lower") return cased(text, false);
      if (name == "startswith") return text.starts_with(text_at(0).value_or(""));
      if (name == "endswith") return text.ends_with(text_at(0).value_or(""));
      if (name == "replace" && arguments.size() == 2) return replaced(text, *text_at(0), *text_at(1));
      if (name == "split" && arguments.size() <= 1) return split(text, text_at(0));
      if (name == "join" && arguments.size() == 1) return joined(arguments[0], text, expression);
    }
    if (self.is_object()) {
      if (name == "get" && !arguments.empty()) {
        const auto found = self.find(text_at(0).value_or(""));
        return found != self.end() ? *found : arguments.size() > 1 ? arguments[1] : Value(nullptr);
      }
      if (name == "items") return pairs_of(self);
      Value list = Value::array();
      for (auto item = self.begin(); item != self.end(); ++item) list.push_back(name == "keys" ? Value(item.key()) : *item);
      if (name == "keys" || name == "values") return list;
    }
    refuse(expression,
           fmt::format(".{}() with {} arguments of {}, which is not in this version", name, arguments.size(), kind_of(self)));
  }
  static Value split(std::string_view text, const std::optional<std::string>& by) {
    Value list = Value::array();
    if (by && !by->empty()) {
      for (std::size_t at = text.find(*by); at != text.npos; at = text.find(*by)) {
        list.push_back(std::string(text.substr(0, at)));
        text.remove_prefix(at + by->size());
      }
      list.push_back(std::string(text));
      return list;
    }
    while (!text.empty()) {
      const auto word_end = static_cast<std::size_t>(std::ranges::find_if(text, is_space) - text.begin());
      if (word_end > 0) list.push_back(std::string(text.substr(0, word_end)));
      text.remove_prefix(std::min(word_end + 1, text.size()));
    }
    return list;
  }
  static Value pairs_of(const Value& object) {
    Value list = Value::array();
    for (auto item = object.begin(); item != object.end(); ++item) list.push_back(Value::array({item.key(), *item}));
    return list;
  }
  Value joined(const Value& list, const std::string& between, const Expression& at) const {
    std::string text;
    bool is_first = true;
    for (const Value& item : items_of(list, at)) {
      if (!is_first) text += between;
      is_first = false;
      text += printed(item, at);
    }
    return text;
  }

  Value filter(const Expression& expression) {
    const std::string& name = expression.name;
    Value own;
    const Value& value = look(expression.parts[0], own);
    std::vector<Value> arguments;
    for (std::size_t i = 1; i < expression.parts.size(); ++i) arguments.push_back(value_of(expression.parts[i]));
    const auto named = [&](std::string_view key) {
      const auto found = static_cast<std::size_t>(std::ranges::find(expression.names, key) - expression.names.begin());
      return found < expression.named.size() ? value_of(expression.named[found]) : undefined();
    };
    const auto text_at = [&](std::size_t i) { return i < arguments.size() ? printed(arguments[i], expression) : std::string(); };
    if (name == "default" || name == "d") {
      const bool falsy_too = is_true(named("boolean")) || (arguments.size() > 1 && is_true(arguments[1]));
      if (!is_undefined(value) && (!falsy_too || is_true(value))) return value;
      return arguments.empty() ? Value("") : arguments[0];
    }
    if (name == "tojson") {
      if (is_undefined(value)) refuse(expression, "tojson of what is not defined");
      const Value indent = arguments.empty() ? named("indent") : arguments[0];
      std::string text;
      dump_json(value, indent.is_number_integer() ? std::clamp(indent.get<int>(), 0, 16) : -1, 0, text);
      return text;
    }
    if (name == "length" || name == "count") {
      if (value.is_string()) return characters_of(text_of(value)).size();
      if (value.is_structured() || is_undefined(value)) return is_undefined(value) ? 0 : value.size();
      refuse(expression, fmt::format("length of {}", kind_of(value)));
    }
    if (name == "join") return joined(value, text_at(0), expression);
    if (name == "items") return value.is_object() ? pairs_of(value) : Value::array();
    if (name == "list") return Value(items_of(value, expression));
    if (name == "first" || name == "last" || name == "reverse") {
      std::vector<Value> items = items_of(value, expression);
      if (name == "reverse") {
        std::ranges::reverse(items);
        return value.is_string() ? joined(Value(items), "", expression) : Value(items);
      }
      return items.empty() ? undefined() : name == "first" ? items.front() : items.back();
    }
    if (name == "map" || name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr")
      return over_items(expression, value, arguments, named("attribute"));
    if (name == "int")
      return value.is_number()   ? Value(value.get<std::int64_t>())
             : value.is_string() ? Value(std::strtoll(text_of(value).c_str(), nullptr, 10))
                                 : Value(0);
    const std::string text = printed(value, expression);
    if (name == "trim") return stripped(text, Side::both, arguments.empty() ? std::nullopt : std::optional(text_at(0)));
    if (name == "lower" || name == "upper") return cased(text, name == "upper");
    if (name == "capitalize")
      return cased(text.substr(0, 1), true) + cased(text.substr(std::min<std::size_t>(1, text.size())), false);
    if (name == "replace") return replaced(text, text_at(0), text_at(1));
    return text;  // string, safe
  }
  // map(attribute=...), map("filter"); select, reject, selectattr and rejectattr, with a test and what it compares with.
  Value over_items(const Expression& expression, const Value& value, const std::vector<Value>& arguments,
                   const Value& attribute) {
    Value list = Value::array();
    for (const Value& item : items_of(value, expression)) {
      const auto part = [&](const Value& name) {
        return name.is_string() && item.is_object() && item.contains(text_of(name)) ? item.at(text_of(name)) : undefined();
      };
      if (expression.name == "map") {
        if (!is_undefined(attribute)) {
          list.push_back(part(attribute));
          continue;
        }
        if (arguments.empty() || !arguments[0].is_string() || !is_template_filter(text_of(arguments[0])))
          refuse(expression, "map by what is no filter of this version");
        const Expression subject = {.line = expression.line, .value = item};
        list.push_back(filter(
            {.kind = Expression::Kind::filter, .line = expression.line, .name = text_of(arguments[0]), .parts = {subject}}));
        continue;
      }
      const bool is_whole = !expression.name.ends_with("attr");
      if (!is_whole && arguments.empty()) refuse(expression, fmt::format("{} without a name", expression.name));
      const Value found = is_whole ? item : part(arguments[0]);
      const std::size_t at = is_whole ? 0 : 1;
      bool is_so = is_true(found);
      if (arguments.size() > at) {
        const std::string name = arguments[at].is_string() ? text_of(arguments[at]) : "";
        if (name != "==" && !is_template_test(name))
          refuse(expression, fmt::format("{} by a test that is not in this version", expression.name));
        is_so = test(found, name == "==" ? "eq" : name, arguments.size() > at + 1 ? arguments[at + 1] : undefined(), expression);
      }
      if (is_so == expression.name.starts_with("select")) list.push_back(item);
    }
    return list;
  }
  bool test(const Value& value, std::string_view name, const Value& other, const Expression& at) const {
    if (name == "defined") return !is_undefined(value);
    if (name == "undefined") return is_undefined(value);
    if (name == "none") return value.is_null();
    if (name == "string") return value.is_string();
    if (name == "number") return value.is_number() || value.is_boolean();
    if (name == "integer") return value.is_number_integer();
    if (name == "float") return value.is_number_float();
    if (name == "boolean") return value.is_boolean();
    if (name == "mapping") return value.is_object();
    if (name == "iterable" || name == "sequence") return value.is_structured() || value.is_string() || is_undefined(value);
    if (name == "true") return value.is_boolean() && value.get<bool>();
    if (name == "false") return value.is_boolean() && !value.get<bool>();
    if (name == "in") return contains(other, value, at);
    return are_equal(value, other);
  }

  const std::string& origin_;
  std::vector<std::map<std::string, Value>> scopes_;  // the innermost last
  std::int64_t steps_ = 0;
};

}  // namespace

bool is_template_filter(std::string_view name) { return std::ranges::find(kFilters, name) != kFilters.end(); }
bool is_template_test(std::string_view name) { return std::ranges::find(kTests, name) != kTests.end(); }

Template::Template(std::string_view source, std::string origin)
    : origin_(std::move(origin)), body_(std::make_unique<const TemplateBody>(parse_template(source, origin_))) {}
Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

std::string Template::render(const TemplateValue& variables) const { return Renderer(origin_, variables).run(*body_); }

}  // namespace spillway
