#include "trainer/chat/template_parse_expression.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "trainer/chat/template_call.h"

namespace spillway {

using Expression = TemplateExpression;
using Parser = TemplateExpressionParser;
using Token = TemplateToken;

namespace {
constexpr int kDeepest = 200;            // nesting of expressions in the source
constexpr int kDeepestExpression = 400;  // operations on the results of others: 1 + 1 + 1 is two
}  // namespace

Expression Parser::make(Expression::Kind kind, std::string name, std::vector<Expression> parts) const {
  Expression made{.kind = kind, .line = tokens_.now().line, .name = std::move(name)};
  for (Expression& part : parts) add(made, std::move(part));
  return made;
}

void Parser::add(Expression& to, Expression part) const {
  if (part.depth >= kDeepestExpression) tokens_.refuse("found an expression that is too deep");
  to.depth = std::max(to.depth, part.depth + 1);
  to.parts.push_back(std::move(part));
}

void Parser::go_deeper() {
  if (++depth_ > kDeepest) tokens_.refuse("found an expression that is too deep");
}

void Parser::note_unknown(std::string what) { unknown_.push_back(std::move(what)); }

void Parser::settle_unknown(Place place) {
  if (!unknown_.empty() && place == Place::hard) tokens_.refuse_kind(unknown_.front());
  unknown_.clear();
}

Expression Parser::expression(Place place) {
  Expression value = whole();
  settle_unknown(place);
  return value;
}

Expression Parser::expression_without_if(Place place) {
  Expression value = either();
  settle_unknown(place);
  return value;
}

// From the loosest: if, or, and, not, comparisons, + -, ~, * / // %, unary, then filters and tests.
Expression Parser::whole() {
  go_deeper();
  const std::size_t unknown = unknown_.size();
  Expression value = either();
  while (tokens_.take_word("if")) {
    Expression condition = either();
    Expression otherwise = tokens_.take_word("else") ? whole() : Expression{.line = tokens_.now().line};
    value = make(Expression::Kind::conditional, "", {std::move(value), std::move(condition), std::move(otherwise)});
    unknown_.resize(unknown);  // a soft place
  }
  --depth_;
  return value;
}

Expression Parser::either() {
  Expression left = both();
  while (tokens_.take_word("or")) left = make(Expression::Kind::binary, "or", {std::move(left), both()});
  return left;
}

Expression Parser::both() {
  Expression left = negated();
  while (tokens_.take_word("and")) left = make(Expression::Kind::binary, "and", {std::move(left), negated()});
  return left;
}

Expression Parser::negated() {
  if (!tokens_.take_word("not")) return comparison();
  go_deeper();
  Expression value = make(Expression::Kind::negation, "", {negated()});
  --depth_;
  return value;
}

Expression Parser::comparison() {
  Expression chain = make(Expression::Kind::comparison, "", {sum()});
  for (;;) {
    std::string name;
    for (const std::string_view symbol : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (name.empty() && tokens_.take_symbol(symbol)) name = symbol;
    }
    if (name.empty() && tokens_.take_word("in")) name = "in";
    if (name.empty() && tokens_.is_word("not") && tokens_.after().kind == Token::Kind::name && tokens_.after().text == "in") {
      tokens_.next();
      tokens_.next();
      name = "not in";
    }
    if (name.empty() && chain.names.empty()) return std::move(chain.parts[0]);
    if (name.empty()) return chain;
    chain.names.push_back(std::move(name));
    add(chain, sum());
  }
}

Expression Parser::sum() {
  Expression left = concatenation();
  for (;;) {
    const std::string name = tokens_.now().text;
    if (!tokens_.take_symbol("+") && !tokens_.take_symbol("-")) return left;
    left = make(Expression::Kind::binary, name, {std::move(left), concatenation()});
  }
}

Expression Parser::concatenation() {
  Expression left = product();
  while (tokens_.take_symbol("~")) left = make(Expression::Kind::binary, "~", {std::move(left), product()});
  return left;
}

Expression Parser::product() {
  Expression left = signed_value();
  for (;;) {
    const std::string name = tokens_.now().text;
    if (tokens_.is_symbol("**")) tokens_.refuse_kind("**");
    if (!tokens_.take_symbol("*") && !tokens_.take_symbol("//") && !tokens_.take_symbol("/") && !tokens_.take_symbol("%"))
      return left;
    left = make(Expression::Kind::binary, name, {std::move(left), signed_value()});
  }
}

Expression Parser::signed_value() {
  const bool is_negative = tokens_.take_symbol("-");
  Expression value = postfix(primary());
  if (is_negative) value = make(Expression::Kind::minus, "", {std::move(value)});
  for (;;) {
    if (tokens_.take_symbol("|")) {
      value = filter(std::move(value));
    } else if (tokens_.take_word("is")) {
      value = test(std::move(value));
    } else if (tokens_.take_symbol("(")) {  // what a filter gave is called
      Expression call = make(Expression::Kind::call, "", {std::move(value)});
      arguments(call, Spread::allowed);
      value = std::move(call);
    } else {
      return value;
    }
  }
}

void Parser::check_call(const TemplateSignature* signature, const Expression& call) {
  if (signature == nullptr)
    return note_unknown(fmt::format("the {} {}", call.kind == Expression::Kind::filter ? "filter" : "test", call.name));
  const std::string problem = problem_of_call(*signature, call.parts.size() - 1, call.names);
  if (!problem.empty()) tokens_.refuse(fmt::format("found {}", problem));
}

Expression Parser::filter(Expression value) {
  Expression made = make(Expression::Kind::filter, tokens_.need_name(), {std::move(value)});
  if (tokens_.take_symbol("(")) arguments(made, Spread::refused);
  check_call(find_template_filter(made.name), made);
  return made;
}

Expression Parser::test(Expression value) {
  const bool is_negated = tokens_.take_word("not");
  Expression made = make(Expression::Kind::test, tokens_.need_name(), {std::move(value)});
  if (tokens_.take_symbol("("))
    arguments(made, Spread::refused);
  else if (begins_argument())
    add(made, postfix(primary()));
  check_call(find_template_test(made.name), made);
  return is_negated ? make(Expression::Kind::negation, "", {std::move(made)}) : made;
}

// Returns true if a test's argument without parentheses begins here: `is equalto 1`.
bool Parser::begins_argument() const {
  const Token::Kind kind = tokens_.now().kind;
  if (kind == Token::Kind::name) return !tokens_.is_word("else") && !tokens_.is_word("or") && !tokens_.is_word("and");
  return kind == Token::Kind::string || kind == Token::Kind::number || tokens_.is_symbol("[") || tokens_.is_symbol("{");
}

void Parser::arguments(Expression& call, Spread spread) {
  const auto add_named = [&](std::string name) {
    call.names.push_back(std::move(name));
    call.named.push_back(whole());
    call.depth = std::max(call.depth, call.named.back().depth + 1);
  };
  bool has_spread = false, has_spread_names = false;
  while (!tokens_.take_symbol(")")) {
    if (has_spread_names) tokens_.refuse("found an argument behind **");
    const bool has_stars = tokens_.is_symbol("*") || tokens_.is_symbol("**");
    if (has_stars && spread == Spread::refused) tokens_.refuse_kind("a call with " + tokens_.now().text);
    const bool is_named =
        tokens_.now().kind == Token::Kind::name && tokens_.after().kind == Token::Kind::symbol && tokens_.after().text == "=";
    if (is_named) {
      std::string name = tokens_.need_name();
      tokens_.next();
      add_named(std::move(name));
    } else if (tokens_.take_symbol("**")) {
      has_spread_names = true;
      add_named(std::string(kSpreadArguments));
    } else {
      if (!call.names.empty()) tokens_.refuse("found an argument without a name behind one with a name");
      if (has_spread) tokens_.refuse("found an argument without a name behind one with *");
      const bool is_spread = has_spread = tokens_.take_symbol("*");
      add(call, is_spread ? make(Expression::Kind::spread, "", {whole()}) : whole());
    }
    if (!tokens_.is_symbol(")")) tokens_.need_symbol(",");
  }
}

Expression Parser::postfix(Expression value) {
  for (;;) {
    if (tokens_.take_symbol(".")) {
      value = member(std::move(value));
    } else if (tokens_.take_symbol("(")) {
      Expression call = make(Expression::Kind::call, "", {std::move(value)});
      arguments(call, Spread::allowed);
      value = std::move(call);
    } else if (tokens_.take_symbol("[")) {
      value = subscript(std::move(value));
    } else {
      return value;
    }
  }
}

// `value.name`, or `value.0`, which is value[0].
Expression Parser::member(Expression value) {
  if (tokens_.now().kind == Token::Kind::number && tokens_.now().text.find_first_not_of("0123456789") == std::string::npos)
    return make(Expression::Kind::index, "", {std::move(value), number()});
  return make(Expression::Kind::member, tokens_.need_name(), {std::move(value)});
}

Expression Parser::subscript(Expression value) {
  const auto none = [&] { return Expression{.line = tokens_.now().line, .value = nullptr}; };
  const auto bound = [&] { return tokens_.is_symbol(":") || tokens_.is_symbol("]") ? none() : whole(); };
  if (tokens_.is_symbol("]")) tokens_.refuse("found ], allowed: a value");
  Expression first = bound();
  if (tokens_.take_symbol("]")) return make(Expression::Kind::index, "", {std::move(value), std::move(first)});
  tokens_.need_symbol(":");
  Expression last = bound();
  Expression step = tokens_.take_symbol(":") ? bound() : none();
  tokens_.need_symbol("]");
  return make(Expression::Kind::slice, "", {std::move(value), std::move(first), std::move(last), std::move(step)});
}

Expression Parser::primary() {
  const Token& token = tokens_.now();
  if (token.kind == Token::Kind::string) return text();
  if (token.kind == Token::Kind::number) return number();
  if (token.kind == Token::Kind::name) return word();
  if (tokens_.take_symbol("(")) return tuple();
  if (tokens_.take_symbol("[")) return list();
  if (tokens_.take_symbol("{")) return object();
  tokens_.refuse(fmt::format("found {}, allowed: a value", tokens_.shown()));
}

// Neighbouring strings are one.
Expression Parser::text() {
  Expression value = make(Expression::Kind::literal, "", {});
  std::string text;
  while (tokens_.now().kind == Token::Kind::string) text += tokens_.next().text;
  value.value = text;
  return value;
}

Expression Parser::tuple() {
  if (tokens_.take_symbol(")")) return make(Expression::Kind::tuple, "", {});
  Expression value = whole();
  if (tokens_.is_symbol(",")) {
    value = make(Expression::Kind::tuple, "", {std::move(value)});
    while (tokens_.take_symbol(",")) {
      if (!tokens_.is_symbol(")")) add(value, whole());
    }
  }
  tokens_.need_symbol(")");
  return value;
}

Expression Parser::list() {
  Expression value = make(Expression::Kind::list, "", {});
  while (!tokens_.take_symbol("]")) {
    add(value, whole());
    if (!tokens_.is_symbol("]")) tokens_.need_symbol(",");
  }
  return value;
}

Expression Parser::object() {
  Expression value = make(Expression::Kind::object, "", {});
  while (!tokens_.take_symbol("}")) {
    add(value, whole());
    tokens_.need_symbol(":");
    add(value, whole());
    if (!tokens_.is_symbol("}")) tokens_.need_symbol(",");
  }
  return value;
}

Expression Parser::number() {
  Expression value = make(Expression::Kind::literal, "", {});
  const std::string& text = tokens_.now().text;
  const char* const end = text.data() + text.size();
  const auto read = [&](auto number) {
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc() || stop != end) tokens_.refuse(fmt::format("found the number {}", text));
    return number;
  };
  const bool is_whole = text.find_first_of(".eE") == text.npos;
  if (is_whole && text[0] == '0' && text.find_first_not_of('0') != text.npos)
    tokens_.refuse(fmt::format("found the number {}", text));
  value.value = is_whole ? TemplateValue(read(std::int64_t{})) : TemplateValue(read(double{}));
  tokens_.next();
  return value;
}

Expression Parser::word() {
  const std::string name = tokens_.next().text;
  Expression value = make(Expression::Kind::literal, "", {});
  if (name == "true" || name == "True") {
    value.value = true;
  } else if (name == "false" || name == "False") {
    value.value = false;
  } else if (name == "none" || name == "None") {
    value.value = nullptr;
  } else {
    value.kind = Expression::Kind::name;
    value.name = name;
    special_names_ |= special_name(name);
  }
  return value;
}

}  // namespace spillway
