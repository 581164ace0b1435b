// Runs the statements of a template and evaluates its expressions.
#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "memory/base/error.h"
#include "trainer/chat/template.h"
#include "trainer/chat/template_call.h"
#include "trainer/chat/template_operators.h"
#include "trainer/chat/template_syntax.h"
#include "trainer/chat/template_text.h"
#include "trainer/text/resource_error.h"

namespace spillway {
namespace {

using Expression = TemplateExpression;
using Statement = TemplateStatement;
using Value = TemplateValue;
using Kind = TemplateValue::Kind;

class Renderer {
 public:
  Renderer(const std::string& origin, const Value& variables) : origin_(origin), scopes_(1) {
    for (const auto& [name, value] : entries_of(variables)) scopes_[0][name.text()] = value;
  }
  // Namespaces may hold each other and themselves, so their entries are cleared here.
  ~Renderer() {
    for (const Value& space : spaces_) space.space().entries.clear();
  }
  Renderer(const Renderer&) = delete;
  Renderer& operator=(const Renderer&) = delete;

  std::string run(const TemplateBody& body) {
    std::string out;
    try {
      render(body, out);
    } catch (const TemplateProblem& problem) {  // from a statement: problems from expressions know their line
      refuse_problem(problem, fmt::format("{}: {}", origin_, problem.found));
    }
    return out;
  }

 private:
  enum class Flow : std::uint8_t { goes_on, breaks, continues };

  [[noreturn]] static void refuse_problem(const TemplateProblem& problem, const std::string& message) {
    if (problem.is_lacking) throw ResourceError(message);
    throw InputError(message);
  }
  [[noreturn]] void refuse(const Expression& at, const std::string& found) const {
    throw InputError(fmt::format("{}: line {}: {}", origin_, at.line, found));
  }

  Flow render(const TemplateBody& body, std::string& out) {
    for (const Statement& statement : body.statements) {
      work_.step();
      const Flow flow = render(statement, out);
      if (out.size() > kLongestTemplateText)
        throw InputError(fmt::format("{}: makes more than {} bytes of one conversation", origin_, kLongestTemplateText));
      if (flow != Flow::goes_on) return flow;
    }
    return Flow::goes_on;
  }
  Flow render(const Statement& statement, std::string& out) {
    switch (statement.kind) {
      case Statement::Kind::text: out += statement.text; return Flow::goes_on;
      case Statement::Kind::output: output(statement.expressions[0], out); return Flow::goes_on;
      case Statement::Kind::branches: {
        std::size_t taken = 0;
        while (taken < statement.expressions.size() && !holds(statement.expressions[taken])) ++taken;
        return taken < statement.bodies.size() ? render(statement.bodies[taken], out) : Flow::goes_on;
      }
      case Statement::Kind::loop: return loop(statement, out);
      case Statement::Kind::scope: return render_within(statement.bodies[0], out);
      case Statement::Kind::set: assign(statement, value_of(statement.expressions[0])); return Flow::goes_on;
      case Statement::Kind::set_body: {
        std::string text;
        const Flow flow = render_within(statement.bodies[0], text);
        if (flow == Flow::goes_on) assign(statement, Value(std::move(text)));
        return flow;
      }
      case Statement::Kind::break_loop: return Flow::breaks;
      case Statement::Kind::continue_loop: return Flow::continues;
    }
    return Flow::goes_on;
  }
  void output(const Expression& expression, std::string& out) {
    const Value value = value_of(expression);
    if (value.is_text())
      out += value.text();
    else
      located(expression, [&] { out += printed(value); });
  }
  // Renders in a scope of its own: variables that are set in it end with it.
  Flow render_within(const TemplateBody& body, std::string& out) {
    scopes_.emplace_back();
    const Flow flow = render(body, out);
    scopes_.pop_back();
    return flow;
  }

  void assign(const Statement& statement, Value value) {
    if (statement.names.size() == 1) {
      scopes_.back()[statement.names[0]] = std::move(value);
      return;
    }
    const std::string &name = statement.names[0], &member = statement.names[1];
    Value* const space = find(name);
    if (space == nullptr || !space->is(Kind::space))
      throw InputError(fmt::format("{}: sets {}.{}, and {} is no namespace", origin_, name, member, name));
    if (member.starts_with('_') || value.kind() >= Kind::loop)
      throw InputError(fmt::format("{}: sets {}.{} to {}, allowed: a value, under a name that does not begin with _", origin_,
                                   name, member, kind_name(value)));
    Value::Entries& entries = space->space().entries;
    const auto found = std::ranges::find_if(entries, [&](const Value::Entry& entry) { return entry.first.text() == member; });
    if (found != entries.end())
      found->second = std::move(value);
    else
      entries.emplace_back(Value(member), std::move(value));
  }

  Flow loop(const Statement& statement, std::string& out) {
    const Expression& over = statement.expressions[0];
    const Value whole = value_of(over);
    Value::Items all;
    located(over, [&] { all = items_with_limits(whole, work_); });
    scopes_.emplace_back();
    auto state = std::make_shared<TemplateLoop>();
    const std::vector<bool> is_met = items_met(statement, all);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (is_met[i]) state->items.push_back(all[i]);
    }
    const bool has_items = !state->items.empty();
    for (std::size_t i = 0; i < all.size(); ++i) {
      work_.step();
      scopes_.back().clear();
      name_item(statement, all[i]);
      if (meets(statement) != is_met[i])
        throw ResourceError(fmt::format(
            "{}: line {}: a loop whose condition is changed by what it does, which is not in this version", origin_, over.line));
      if (!is_met[i]) continue;
      scopes_.back()["loop"] = Value::loop(state);
      if (render(statement.bodies[0], out) == Flow::breaks) {
        leave_iterator(whole);
        break;
      }
      ++state->index0;
    }
    scopes_.pop_back();
    return !has_items && statement.bodies.size() > 1 ? render(statement.bodies[1], out) : Flow::goes_on;
  }
  // Evaluates the loop's condition for every item before the loop begins, so that loop.last is known from the first item on.
  std::vector<bool> items_met(const Statement& statement, const Value::Items& all) {
    std::vector<bool> is_met(all.size(), true);
    if (statement.expressions.size() == 1) return is_met;
    for (std::size_t i = 0; i < all.size(); ++i) {
      work_.step();
      name_item(statement, all[i]);
      is_met[i] = meets(statement);
    }
    return is_met;
  }
  bool meets(const Statement& statement) { return statement.expressions.size() == 1 || holds(statement.expressions[1]); }
  void name_item(const Statement& statement, const Value& item) {
    if (statement.names.size() == 1) {
      scopes_.back()[statement.names[0]] = item;
      return;
    }
    const bool has_parts = item.is_sequence() && !item.is(Kind::iterator);
    if (!has_parts || item.sequence().items.size() != statement.names.size())
      refuse(statement.expressions[0],
             fmt::format("an item that is {} has no {} parts", kind_name(item), statement.names.size()));
    for (std::size_t i = 0; i < statement.names.size(); ++i) scopes_.back()[statement.names[i]] = item.sequence().items[i];
  }

  Value* find(const std::string& name) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (const auto found = scope->find(name); found != scope->end()) return &found->second;
    }
    return nullptr;
  }

  // Adds the place of an expression to a problem in it.
  template <typename Work>
  void located(const Expression& at, const Work& work) const {
    try {
      work();
    } catch (const TemplateProblem& problem) {
      refuse_problem(problem, fmt::format("{}: line {}: {}", origin_, at.line, problem.found));
    }
  }
  bool holds(const Expression& expression) { return is_true(value_of(expression)); }
  Value value_of(const Expression& expression) {
    if (expression.kind == Expression::Kind::literal) return expression.value;
    Value value;
    located(expression, [&] { value = compute(expression); });
    if (static_cast<std::size_t>(value.depth()) > kDeepestTemplateValue)
      refuse(expression, fmt::format("values more than {} deep within each other", kDeepestTemplateValue));
    return value;
  }

  Value compute(const Expression& expression) {
    switch (expression.kind) {
      case Expression::Kind::literal: return expression.value;
      case Expression::Kind::name: return variable(expression.name);
      case Expression::Kind::member: return member_of(value_of(expression.parts[0]), expression.name);
      case Expression::Kind::index: return indexed(expression);
      case Expression::Kind::negation: return !holds(expression.parts[0]);
      case Expression::Kind::minus: return negative(value_of(expression.parts[0]));
      case Expression::Kind::conditional: return value_of(expression.parts[holds(expression.parts[1]) ? 0 : 2]);
      case Expression::Kind::list: return Value::sequence(Kind::list, values_of(expression.parts, 0));
      case Expression::Kind::tuple: return Value::sequence(Kind::tuple, values_of(expression.parts, 0));
      case Expression::Kind::object: {
        Value::Entries entries;
        for (std::size_t i = 0; i + 1 < expression.parts.size(); i += 2)
          entries.emplace_back(value_of(expression.parts[i]), value_of(expression.parts[i + 1]));
        return Value::dictionary(std::move(entries));
      }
      case Expression::Kind::binary: return binary(expression);
      case Expression::Kind::slice:
        return slice_of(value_of(expression.parts[0]), value_of(expression.parts[1]), value_of(expression.parts[2]),
                        value_of(expression.parts[3]), work_);
      case Expression::Kind::call: return call(expression);
      case Expression::Kind::filter:
        return call_template(*find_template_filter(expression.name), value_of(expression.parts[0]), arguments_of(expression),
                             work_);
      case Expression::Kind::test:
        return call_template(*find_template_test(expression.name), value_of(expression.parts[0]), arguments_of(expression),
                             work_);
    }
    return {};
  }
  Value variable(const std::string& name) {
    if (const Value* const found = find(name)) return *found;
    if (find_template_function(name) != nullptr) return {name, Kind::function};
    for (const std::string_view other : {"cycler", "joiner", "lipsum", "self"}) {
      if (name == other) throw TemplateProblem{fmt::format("{}, which is not in this version", name), true};
    }
    return {};
  }
  Value indexed(const Expression& expression) {
    const Value whole = value_of(expression.parts[0]);
    const Value key = value_of(expression.parts[1]);
    if (whole.is_text()) work_.spend(whole.weight());
    return item_of(whole, key);
  }
  Value binary(const Expression& expression) {
    const std::string& op = expression.name;
    Value left = value_of(expression.parts[0]);
    if (op == "and") return is_true(left) ? value_of(expression.parts[1]) : left;
    if (op == "or") return is_true(left) ? left : value_of(expression.parts[1]);
    return operate(op, left, value_of(expression.parts[1]), work_);
  }

  Value::Items values_of(const std::vector<Expression>& parts, std::size_t first) {
    Value::Items values;
    for (std::size_t i = first; i < parts.size(); ++i) values.push_back(value_of(parts[i]));
    return values;
  }
  TemplateArguments arguments_of(const Expression& expression) {
    return {.values = values_of(expression.parts, 1), .names = expression.names, .named = values_of(expression.named, 0)};
  }
  Value call(const Expression& expression) {
    const Expression& callee = expression.parts[0];
    if (callee.kind == Expression::Kind::name && find(callee.name) == nullptr && find_template_function(callee.name) == nullptr)
      throw TemplateProblem{fmt::format("a call of {}, which is not in this version", callee.name), true};
    const Value what = value_of(callee);
    // Such values have no member of that name: the message tells the missing name.
    if (callee.kind == Expression::Kind::member && !what.is_defined())
      throw TemplateProblem{fmt::format("a call of .{}(), which is not defined or not allowed", callee.name)};
    const TemplateArguments arguments = arguments_of(expression);
    if (what.is(Kind::method))
      return call_template(template_method(what.method().of, what.method().name), what.method().of, arguments, work_);
    if (!what.is(Kind::function)) throw TemplateProblem{fmt::format("a call of {}", kind_name(what))};
    const TemplateSignature& function = *find_template_function(what.text());
    if (function.run == nullptr) raise(function, arguments);
    Value made = call_template(function, Value(), arguments, work_);
    if (made.is(Kind::space)) spaces_.push_back(made);
    return made;
  }
  [[noreturn]] void raise(const TemplateSignature& function, const TemplateArguments& arguments) {
    const Value self;
    const TemplateCall call(function, self, arguments, work_);
    std::string said = printed(call.needed(0));
    std::ranges::replace(said, '\n', ' ');
    throw InputError(fmt::format("{}: the template refuses the messages: {}", origin_, said));
  }

  const std::string& origin_;
  std::vector<std::map<std::string, Value>> scopes_;  // the innermost last
  std::vector<Value> spaces_;                         // all namespaces that were made
  TemplateWork work_;
};

}  // namespace

Template::Template(std::string_view source, std::string origin)
    : origin_(std::move(origin)), body_(std::make_unique<const TemplateBody>(parse_template(source, origin_))) {}
Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

std::string Template::render(const TemplateValue& variables) const { return Renderer(origin_, variables).run(*body_); }

}  // namespace spillway
