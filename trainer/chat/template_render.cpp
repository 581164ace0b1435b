// Runs the statements of a template and evaluates its expressions.
#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "memory/base/error.h"
#include "trainer/chat/template.h"
#include "trainer/chat/template_call.h"
#include "trainer/chat/template_date.h"
#include "trainer/chat/template_macro.h"
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
  Renderer(const std::string& origin, const Value& variables, const TemplateDate& date, TemplateMarks marks)
      : origin_(origin), date_(date), marks_(marks), scopes_(1) {
    for (const auto& [name, value] : entries_of(variables)) scopes_[0].variables[name.text()] = value;
  }
  // Namespaces may hold each other and themselves, so their entries are cleared here.
  ~Renderer() {
    for (const Value& space : spaces_) space.space().entries.clear();
  }
  Renderer(const Renderer&) = delete;
  Renderer& operator=(const Renderer&) = delete;

  TemplateText run(const TemplateBody& body) {
    TemplateText out;
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

  Flow render(const TemplateBody& body, TemplateText& out) {
    go_deeper();
    Flow flow = Flow::goes_on;
    for (const Statement& statement : body.statements) {
      work_.step();
      flow = render(statement, out);
      if (out.text.size() > kLongestTemplateText)
        throw InputError(fmt::format("{}: makes more than {} bytes of one conversation", origin_, kLongestTemplateText));
      if (flow != Flow::goes_on) break;
    }
    --depth_;
    return flow;
  }
  Flow render(const Statement& statement, TemplateText& out) {
    switch (statement.kind) {
      case Statement::Kind::text:
        work_.spend(static_cast<std::int64_t>(statement.text.size()));
        out.text += statement.text;
        return Flow::goes_on;
      case Statement::Kind::output: output(statement.expressions[0], out); return Flow::goes_on;
      case Statement::Kind::branches: {
        std::size_t taken = 0;
        while (taken < statement.expressions.size() && !holds(statement.expressions[taken])) ++taken;
        return taken < statement.bodies.size() ? render(statement.bodies[taken], out) : Flow::goes_on;
      }
      case Statement::Kind::loop: return loop(statement, out);
      case Statement::Kind::generation: generation(statement, out); return Flow::goes_on;
      case Statement::Kind::set: assign(statement, value_of(statement.expressions[0])); return Flow::goes_on;
      case Statement::Kind::set_body: {
        TemplateText text;
        const Flow flow = render_within(statement.bodies[0], text);
        if (flow == Flow::goes_on) assign(statement, Value(std::move(text), Kind::text));
        return flow;
      }
      case Statement::Kind::macro: scopes_.back().variables[statement.text] = macro_here(statement); return Flow::goes_on;
      case Statement::Kind::call_block: call_block(statement, out); return Flow::goes_on;
      case Statement::Kind::break_loop: return Flow::breaks;
      case Statement::Kind::continue_loop: return Flow::continues;
    }
    return Flow::goes_on;
  }
  void output(const Expression& expression, TemplateText& out) {
    const Value value = value_of(expression);
    located(expression, [&] {
      const Value text = value.is_text() ? value : Value(printed(value));
      work_.spend(text.weight());
      append_text(out, text.marked_text());
    });
  }
  void generation(const Statement& statement, TemplateText& out) {
    const std::size_t first = out.text.size(), spans = out.generated.size();
    // The reference makes a macro of the block, which is called without arguments.
    enter_scope(scopes_.size() - 1);
    for (const auto& [name, value] : macro_arguments(statement, {}).values) scopes_.back().variables[name] = value;
    render(statement.bodies[0], out);
    scopes_.pop_back();
    if (marks_ == TemplateMarks::none) return;
    out.generated.resize(spans);  // blocks within this one have no spans of their own
    out.generated.emplace_back(first, out.text.size());
  }
  // Renders in a scope of its own: variables that are set in it end with it.
  Flow render_within(const TemplateBody& body, TemplateText& out) {
    enter_scope(scopes_.size() - 1);
    const Flow flow = render(body, out);
    scopes_.pop_back();
    return flow;
  }
  void enter_scope(std::size_t parent) { scopes_.push_back({.variables = {}, .parent = parent}); }

  Value macro_here(const Statement& statement) const {
    return Value::macro({.statement = &statement, .scope = scopes_.size() - 1});
  }
  void call_block(const Statement& statement, TemplateText& out) {
    const Expression& expression = statement.expressions[0];
    located(expression, [&] {
      const Value text = call(expression, macro_here(statement.bodies[0].statements[0]));
      if (!text.is_text()) throw TemplateProblem{fmt::format("a call block that gives {}", kind_name(text)), true};
      append_text(out, text.marked_text());
    });
  }
  Value call_macro(const TemplateMacro& macro, const TemplateArguments& arguments) {
    if (++calls_ > kDeepestTemplateCalls)
      throw TemplateProblem{fmt::format("macros that call each other more than {} deep", kDeepestTemplateCalls)};
    work_.step();
    work_.spend(kCostOfTemplateCall);
    const Statement& statement = *macro.statement;
    const MacroArguments bound = macro_arguments(statement, arguments);
    enter_scope(macro.scope);
    for (const auto& [name, value] : bound.values) scopes_.back().variables[name] = value;
    for (const std::size_t parameter : bound.missing) {
      const std::size_t with_default = statement.names.size() - statement.expressions.size();
      if (parameter >= with_default)
        scopes_.back().variables[statement.names[parameter]] = value_of(statement.expressions[parameter - with_default]);
    }
    TemplateText text;
    render(statement.bodies[0], text);
    scopes_.pop_back();
    --calls_;
    return {std::move(text), Kind::text};
  }

  void assign(const Statement& statement, Value value) {
    if (statement.names.size() == 1) {
      scopes_.back().variables[statement.names[0]] = std::move(value);
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

  Flow loop(const Statement& statement, TemplateText& out) {
    const Expression& over = statement.expressions[0];
    const Value whole = value_of(over);
    Value::Items all;
    located(over, [&] { all = items_with_limits(whole, work_); });
    enter_scope(scopes_.size() - 1);
    auto state = std::make_shared<TemplateLoop>();
    const std::vector<bool> is_met = items_met(statement, all);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (is_met[i]) state->items.push_back(all[i]);
    }
    const bool has_items = !state->items.empty();
    for (std::size_t i = 0; i < all.size(); ++i) {
      work_.step();
      scopes_.back().variables.clear();
      name_item(statement, all[i]);
      if (meets(statement) != is_met[i])
        throw ResourceError(fmt::format(
            "{}: line {}: a loop whose condition is changed by what it does, which is not in this version", origin_, over.line));
      if (!is_met[i]) continue;
      scopes_.back().variables["loop"] = Value::loop(state);
      if (render(statement.bodies[0], out) == Flow::breaks) {
        leave_iterator(whole);
        break;
      }
      ++state->index0;
    }
    scopes_.pop_back();
    return !has_items && statement.bodies.size() > 1 ? render_within(statement.bodies[1], out) : Flow::goes_on;
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
      scopes_.back().variables[statement.names[0]] = item;
      return;
    }
    const bool has_parts = item.is_sequence() && !item.is(Kind::iterator);
    if (!has_parts || item.sequence().items.size() != statement.names.size())
      refuse(statement.expressions[0],
             fmt::format("an item that is {} has no {} parts", kind_name(item), statement.names.size()));
    for (std::size_t i = 0; i < statement.names.size(); ++i)
      scopes_.back().variables[statement.names[i]] = item.sequence().items[i];
  }

  Value* find(const std::string& name) {
    for (std::size_t scope = scopes_.size() - 1;; scope = scopes_[scope].parent) {
      std::map<std::string, Value>& variables = scopes_[scope].variables;
      if (const auto found = variables.find(name); found != variables.end()) return &found->second;
      if (scope == 0) return nullptr;
    }
  }
  void go_deeper() {
    if (++depth_ > kDeepestTemplateEvaluation)
      throw InputError(fmt::format("{}: evaluates expressions and blocks more than {} deep within each other", origin_,
                                   kDeepestTemplateEvaluation));
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
    go_deeper();
    located(expression, [&] { value = compute(expression); });
    --depth_;
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
      case Expression::Kind::comparison: return comparison(expression);
      case Expression::Kind::spread: break;  // only among arguments
      case Expression::Kind::slice:
        return slice_of(value_of(expression.parts[0]), value_of(expression.parts[1]), value_of(expression.parts[2]),
                        value_of(expression.parts[3]), work_);
      case Expression::Kind::call: return call(expression, Value());
      case Expression::Kind::filter: return by_name(expression, find_template_filter(expression.name), "filter");
      case Expression::Kind::test: return by_name(expression, find_template_test(expression.name), "test");
    }
    return {};
  }
  Value by_name(const Expression& expression, const TemplateSignature* callee, std::string_view kind) {
    const Value value = value_of(expression.parts[0]);
    const TemplateArguments arguments = arguments_of(expression);
    if (callee == nullptr)
      throw TemplateProblem{fmt::format("the {} {}, which is not in this version", kind, expression.name), true};
    return call_template(*callee, value, arguments, work_);
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

  // a < b < c is a < b and b < c.
  Value comparison(const Expression& expression) {
    Value left = value_of(expression.parts[0]), holds;
    for (std::size_t i = 1; i < expression.parts.size(); ++i) {
      Value right = value_of(expression.parts[i]);
      holds = operate(expression.names[i - 1], left, right, work_);
      if (!is_true(holds)) break;
      left = std::move(right);
    }
    return holds;
  }

  Value::Items values_of(const std::vector<Expression>& parts, std::size_t first) {
    Value::Items values;
    for (std::size_t i = first; i < parts.size(); ++i) {
      if (parts[i].kind != Expression::Kind::spread) {
        values.push_back(value_of(parts[i]));
        continue;
      }
      for (Value& value : items_with_limits(value_of(parts[i].parts[0]), work_)) values.push_back(std::move(value));
    }
    return values;
  }
  TemplateArguments arguments_of(const Expression& expression) {
    TemplateArguments arguments{.values = values_of(expression.parts, 1), .names = {}, .named = {}};
    for (std::size_t i = 0; i < expression.names.size(); ++i) {
      Value value = value_of(expression.named[i]);
      if (expression.names[i] != kSpreadArguments) {
        arguments.names.push_back(expression.names[i]);
        arguments.named.push_back(std::move(value));
        continue;
      }
      if (!value.is(Kind::dictionary)) throw TemplateProblem{fmt::format("a call with ** of {}", kind_name(value))};
      for (const auto& [name, each] : entries_of(value)) {
        arguments.names.push_back(printed(name));
        arguments.named.push_back(each);
      }
    }
    return arguments;
  }
  // `caller` is the macro of a call block, else not defined.
  Value call(const Expression& expression, const Value& caller) {
    const Expression& callee = expression.parts[0];
    if (callee.kind == Expression::Kind::name && find(callee.name) == nullptr && find_template_function(callee.name) == nullptr)
      throw TemplateProblem{fmt::format("a call of {}, which is not in this version", callee.name), true};
    const Value what = value_of(callee);
    // Such values have no member of that name: the message tells the missing name.
    if (callee.kind == Expression::Kind::member && !what.is_defined())
      throw TemplateProblem{fmt::format("a call of .{}(), which is not defined or not allowed", callee.name)};
    TemplateArguments arguments = arguments_of(expression);
    if (caller.is_defined()) {
      arguments.names.emplace_back("caller");
      arguments.named.push_back(caller);
    }
    if (what.is(Kind::macro)) return call_macro(what.macro(), arguments);
    if (what.is(Kind::method))
      return call_template(template_method(what.method().of, what.method().name), what.method().of, arguments, work_);
    if (!what.is(Kind::function)) throw TemplateProblem{fmt::format("a call of {}", kind_name(what))};
    const TemplateSignature& function = *find_template_function(what.text());
    if (function.run == nullptr) return call_renderer(function, arguments);
    Value made = call_template(function, Value(), arguments, work_);
    if (made.is(Kind::space)) spaces_.push_back(made);
    return made;
  }
  // Functions that need more than their arguments.
  Value call_renderer(const TemplateSignature& function, const TemplateArguments& arguments) {
    const Value self;
    const TemplateCall call(function, self, arguments, work_);
    if (function.name == "strftime_now") return formatted_date(date_, call.text_at(0));
    std::string said = printed(call.needed(0));
    std::ranges::replace(said, '\n', ' ');
    throw InputError(fmt::format("{}: the template refuses the messages: {}", origin_, said));
  }

  struct Scope {
    std::map<std::string, Value> variables;
    std::size_t parent = 0;  // for names that it lacks: of a macro, where it was defined
  };

  const std::string& origin_;
  const TemplateDate& date_;
  TemplateMarks marks_;
  std::vector<Scope> scopes_;  // the innermost last
  std::vector<Value> spaces_;  // all namespaces that were made
  TemplateWork work_;
  int depth_ = 0;  // of blocks and expressions
  int calls_ = 0;  // macros that are being called
};

}  // namespace

Template::Template(std::string_view source, std::string origin)
    : origin_(std::move(origin)), parsed_(std::make_unique<const ParsedTemplate>(parse_template(source, origin_))) {}
Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

TemplateText Template::render(const TemplateValue& variables, const TemplateDate& date, TemplateMarks marks) const {
  return Renderer(origin_, variables, date, marks).run(parsed_->body);
}

bool Template::has_generation_tags() const { return parsed_->has_generation_tags; }

}  // namespace spillway
