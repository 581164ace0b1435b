#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <utility>

#include "files/json_text.h"
#include "memory/base/error.h"
#include "trainer/chat/template_call.h"
#include "trainer/chat/template_lexer.h"
#include "trainer/chat/template_syntax.h"

namespace spillway {
namespace {

using Expression = TemplateExpression;
using Statement = TemplateStatement;
using Token = TemplateToken;

constexpr int kDeepest = 200;            // nesting of expressions and statements in the source
constexpr int kDeepestExpression = 400;  // operations on the results of others: 1 + 1 + 1 is two

class Parser {
 public:
  Parser(std::vector<Token> tokens, const std::string& origin) : tokens_(std::move(tokens)), origin_(origin) {}

  TemplateBody whole() {
    TemplateBody body = statements({});
    if (now().kind != Token::Kind::end) refuse("found more than the template's end");
    return body;
  }

 private:
  const Token& now() const { return tokens_[at_]; }
  const Token& after() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  [[noreturn]] void refuse(const std::string& found, const std::string& help = "") const {
    throw InputError(fmt::format("{}: line {}: {}", origin_, now().line, found), help);
  }
  [[noreturn]] void refuse_kind(const std::string& what) const {
    refuse(fmt::format("found {}, which is not in this version", what),
           "write the conversations as \"text\", or their \"input_ids\"");
  }
  bool is_symbol(std::string_view text) const { return now().kind == Token::Kind::symbol && now().text == text; }
  bool is_word(std::string_view text) const { return now().kind == Token::Kind::name && now().text == text; }
  bool take_symbol(std::string_view text) { return is_symbol(text) && (++at_, true); }
  bool take_word(std::string_view text) { return is_word(text) && (++at_, true); }
  void need_symbol(std::string_view text) {
    if (!take_symbol(text)) refuse(fmt::format("found {}, allowed: {}", shown(), text));
  }
  void need_word(std::string_view text) {
    if (!take_word(text)) refuse(fmt::format("found {}, allowed: {}", shown(), text));
  }
  std::string need_name() {
    if (now().kind != Token::Kind::name) refuse(fmt::format("found {}, allowed: a name", shown()));
    return tokens_[at_++].text;
  }
  void need(Token::Kind kind) {
    if (now().kind != kind) refuse(fmt::format("found {}, allowed: the end of it", shown()));
    ++at_;
  }
  std::string shown() const {
    switch (now().kind) {
      case Token::Kind::end_block: return "%}";
      case Token::Kind::end_output: return "}}";
      case Token::Kind::end: return "the template's end";
      default: return quoted_json(now().text);
    }
  }

  // Parses up to a block that begins with one of these words and leaves that block unread.
  TemplateBody statements(std::initializer_list<std::string_view> ends) {
    if (++depth_ > kDeepest) refuse("found blocks that are too deep within each other");
    TemplateBody body;
    for (;;) {
      const Token& token = now();
      if (token.kind == Token::Kind::text) {
        body.statements.push_back({.kind = Statement::Kind::text, .text = token.text});
        ++at_;
      } else if (token.kind == Token::Kind::begin_output) {
        ++at_;
        body.statements.push_back({.kind = Statement::Kind::output, .expressions = {expression()}});
        need(Token::Kind::end_output);
      } else if (token.kind == Token::Kind::begin_block) {
        if (std::ranges::find(ends, after().text) != ends.end()) break;
        ++at_;
        body.statements.push_back(block());
      } else {
        break;
      }
    }
    --depth_;
    return body;
  }
  void end_block(std::string_view word) {
    if (now().kind != Token::Kind::begin_block) refuse(fmt::format("found {}, allowed: {}", shown(), word));
    ++at_;
    need_word(word);
    need(Token::Kind::end_block);
  }
  Statement block() {
    if (take_word("if")) return branches();
    if (take_word("for")) return loop();
    if (take_word("set")) return set();
    if (take_word("generation")) return generation();
    for (const auto& [word, kind] :
         {std::pair("break", Statement::Kind::break_loop), std::pair("continue", Statement::Kind::continue_loop)}) {
      if (!take_word(word)) continue;
      if (loops_ == 0) refuse(fmt::format("found {} outside of a loop", word));
      need(Token::Kind::end_block);
      return {.kind = kind};
    }
    refuse_kind("{% " + now().text + " %}");
  }
  // Marks the text of an assistant. Here the block has one effect: variables that are set in it end with it.
  Statement generation() {
    Statement statement{.kind = Statement::Kind::scope};
    need(Token::Kind::end_block);
    const int loops = std::exchange(loops_, 0);
    statement.bodies.push_back(statements({"endgeneration"}));
    loops_ = loops;
    end_block("endgeneration");
    return statement;
  }
  Statement branches() {
    Statement statement{.kind = Statement::Kind::branches};
    statement.expressions.push_back(expression());
    need(Token::Kind::end_block);
    for (;;) {
      statement.bodies.push_back(statements({"elif", "else", "endif"}));
      if (now().kind != Token::Kind::begin_block) refuse("found no {% endif %}");
      ++at_;
      if (take_word("endif")) break;
      if (take_word("elif")) {
        statement.expressions.push_back(expression());
        need(Token::Kind::end_block);
        continue;
      }
      need_word("else");
      need(Token::Kind::end_block);
      statement.bodies.push_back(statements({"endif"}));
      end_block("endif");
      return statement;
    }
    need(Token::Kind::end_block);
    return statement;
  }
  Statement loop() {
    Statement statement{.kind = Statement::Kind::loop};
    const bool has_parentheses = take_symbol("(");
    do {
      statement.names.push_back(need_name());
    } while (take_symbol(","));
    if (has_parentheses) need_symbol(")");
    need_word("in");
    statement.expressions.push_back(either());
    if (take_word("if")) statement.expressions.push_back(expression());
    if (is_word("recursive")) refuse_kind("a recursive loop");
    need(Token::Kind::end_block);
    ++loops_;
    statement.bodies.push_back(statements({"else", "endfor"}));
    --loops_;
    if (now().kind == Token::Kind::begin_block && after().text == "else") {
      at_ += 2;
      need(Token::Kind::end_block);
      statement.bodies.push_back(statements({"endfor"}));
    }
    end_block("endfor");
    return statement;
  }
  Statement set() {
    Statement statement{.kind = Statement::Kind::set};
    statement.names.push_back(need_name());
    if (take_symbol(".")) statement.names.push_back(need_name());
    if (take_symbol("=")) {
      statement.expressions.push_back(expression());
      need(Token::Kind::end_block);
      return statement;
    }
    if (is_symbol(",")) refuse_kind("set with several names");
    need(Token::Kind::end_block);
    statement.kind = Statement::Kind::set_body;
    statement.bodies.push_back(statements({"endset"}));
    end_block("endset");
    return statement;
  }

  Expression make(Expression::Kind kind, std::string name, std::vector<Expression> parts) const {
    Expression made{.kind = kind, .line = now().line, .name = std::move(name)};
    for (Expression& part : parts) add(made, std::move(part));
    return made;
  }
  void add(Expression& to, Expression part) const {
    if (part.depth >= kDeepestExpression) refuse("found an expression that is too deep");
    to.depth = std::max(to.depth, part.depth + 1);
    to.parts.push_back(std::move(part));
  }
  Expression undefined() const { return {.line = now().line}; }

  // Parses by Jinja's precedence, from the loosest: if, or, and, not, comparisons, + -, ~, * / // %, unary, then filters and
  // tests.
  Expression expression() {
    if (++depth_ > kDeepest) refuse("found an expression that is too deep");
    Expression value = either();
    while (take_word("if")) {
      Expression condition = either();
      Expression otherwise = take_word("else") ? expression() : undefined();
      value = make(Expression::Kind::conditional, "", {std::move(value), std::move(condition), std::move(otherwise)});
    }
    --depth_;
    return value;
  }
  Expression either() {
    Expression left = both();
    while (take_word("or")) left = make(Expression::Kind::binary, "or", {std::move(left), both()});
    return left;
  }
  Expression both() {
    Expression left = negated();
    while (take_word("and")) left = make(Expression::Kind::binary, "and", {std::move(left), negated()});
    return left;
  }
  Expression negated() {
    if (!take_word("not")) return comparison();
    if (++depth_ > kDeepest) refuse("found an expression that is too deep");
    Expression value = make(Expression::Kind::negation, "", {negated()});
    --depth_;
    return value;
  }
  Expression comparison() {
    Expression left = sum();
    for (bool is_first = true;; is_first = false) {
      std::string name;
      for (const std::string_view symbol : {"==", "!=", "<=", ">=", "<", ">"}) {
        if (name.empty() && take_symbol(symbol)) name = symbol;
      }
      if (name.empty() && take_word("in")) name = "in";
      if (name.empty() && is_word("not") && after().kind == Token::Kind::name && after().text == "in") at_ += 2, name = "not in";
      if (name.empty()) return left;
      if (!is_first) refuse_kind("a chain of comparisons");
      left = make(Expression::Kind::binary, name, {std::move(left), sum()});
    }
  }
  Expression sum() {
    Expression left = concatenation();
    for (;;) {
      const std::string name = now().text;
      if (!take_symbol("+") && !take_symbol("-")) return left;
      left = make(Expression::Kind::binary, name, {std::move(left), concatenation()});
    }
  }
  Expression concatenation() {
    Expression left = product();
    while (take_symbol("~")) left = make(Expression::Kind::binary, "~", {std::move(left), product()});
    return left;
  }
  Expression product() {
    Expression left = signed_value();
    for (;;) {
      const std::string name = now().text;
      if (is_symbol("**")) refuse_kind("**");
      if (!take_symbol("*") && !take_symbol("//") && !take_symbol("/") && !take_symbol("%")) return left;
      left = make(Expression::Kind::binary, name, {std::move(left), signed_value()});
    }
  }
  Expression signed_value() {
    const bool is_negative = take_symbol("-");
    Expression value = postfix(primary());
    if (is_negative) value = make(Expression::Kind::minus, "", {std::move(value)});
    for (;;) {
      if (take_symbol("|")) {
        value = filter(std::move(value));
      } else if (take_word("is")) {
        value = test(std::move(value));
      } else {
        return value;
      }
    }
  }
  void check_call(const TemplateSignature& signature, const Expression& call) const {
    const std::string problem = problem_of_call(signature, call.parts.size() - 1, call.names);
    if (!problem.empty()) refuse(fmt::format("found {}", problem));
  }
  Expression filter(Expression value) {
    std::string name = need_name();
    const TemplateSignature* const signature = find_template_filter(name);
    if (signature == nullptr) refuse_kind("the filter " + name);
    Expression made = make(Expression::Kind::filter, std::move(name), {std::move(value)});
    if (take_symbol("(")) arguments(made);
    check_call(*signature, made);
    return made;
  }
  Expression test(Expression value) {
    const bool is_negated = take_word("not");
    std::string name = need_name();
    const TemplateSignature* const signature = find_template_test(name);
    if (signature == nullptr) refuse_kind("the test " + name);
    Expression made = make(Expression::Kind::test, std::move(name), {std::move(value)});
    if (take_symbol("("))
      arguments(made);
    else if (begins_argument())
      add(made, postfix(primary()));
    check_call(*signature, made);
    return is_negated ? make(Expression::Kind::negation, "", {std::move(made)}) : made;
  }
  // Returns true if a test's argument without parentheses begins here: `is equalto 1`.
  bool begins_argument() const {
    if (now().kind == Token::Kind::name) return !is_word("else") && !is_word("or") && !is_word("and");
    return now().kind == Token::Kind::string || now().kind == Token::Kind::number || is_symbol("[") || is_symbol("{");
  }
  void arguments(Expression& call) {
    while (!take_symbol(")")) {
      if (now().kind == Token::Kind::name && after().kind == Token::Kind::symbol && after().text == "=") {
        call.names.push_back(need_name());
        ++at_;
        call.named.push_back(expression());
        call.depth = std::max(call.depth, call.named.back().depth + 1);
      } else {
        if (!call.names.empty()) refuse("found an argument without a name behind one with a name");
        if (is_symbol("*") || is_symbol("**")) refuse_kind("a call with " + now().text);
        add(call, expression());
      }
      if (!is_symbol(")")) need_symbol(",");
    }
  }
  Expression postfix(Expression value) {
    for (;;) {
      if (take_symbol(".")) {
        value = make(Expression::Kind::member, need_name(), {std::move(value)});
      } else if (take_symbol("(")) {
        Expression call = make(Expression::Kind::call, "", {std::move(value)});
        arguments(call);
        value = std::move(call);
      } else if (take_symbol("[")) {
        value = subscript(std::move(value));
      } else {
        return value;
      }
    }
  }
  Expression subscript(Expression value) {
    const auto none = [&] { return Expression{.line = now().line, .value = nullptr}; };
    const auto bound = [&] { return is_symbol(":") || is_symbol("]") ? none() : expression(); };
    if (is_symbol("]")) refuse("found ], allowed: a value");
    Expression first = bound();
    if (take_symbol("]")) return make(Expression::Kind::index, "", {std::move(value), std::move(first)});
    need_symbol(":");
    Expression last = bound();
    Expression step = take_symbol(":") ? bound() : none();
    need_symbol("]");
    return make(Expression::Kind::slice, "", {std::move(value), std::move(first), std::move(last), std::move(step)});
  }
  Expression primary() {
    const Token& token = now();
    if (token.kind == Token::Kind::string) {
      Expression value = make(Expression::Kind::literal, "", {});
      std::string text;
      while (now().kind == Token::Kind::string) text += tokens_[at_++].text;  // neighbouring strings are one
      value.value = text;
      return value;
    }
    if (token.kind == Token::Kind::number) return number();
    if (token.kind == Token::Kind::name) return word();
    if (take_symbol("(")) {
      if (take_symbol(")")) return make(Expression::Kind::tuple, "", {});
      Expression value = expression();
      if (is_symbol(",")) {
        value = make(Expression::Kind::tuple, "", {std::move(value)});
        while (take_symbol(",")) {
          if (!is_symbol(")")) add(value, expression());
        }
      }
      need_symbol(")");
      return value;
    }
    if (take_symbol("[")) {
      Expression value = make(Expression::Kind::list, "", {});
      while (!take_symbol("]")) {
        add(value, expression());
        if (!is_symbol("]")) need_symbol(",");
      }
      return value;
    }
    if (take_symbol("{")) {
      Expression value = make(Expression::Kind::object, "", {});
      while (!take_symbol("}")) {
        add(value, expression());
        need_symbol(":");
        add(value, expression());
        if (!is_symbol("}")) need_symbol(",");
      }
      return value;
    }
    refuse(fmt::format("found {}, allowed: a value", shown()));
  }
  Expression number() {
    Expression value = make(Expression::Kind::literal, "", {});
    const std::string& text = tokens_[at_++].text;
    const char* const end = text.data() + text.size();
    if (text.size() > 1 && text[0] == '0' && text[1] != '.') refuse(fmt::format("found the number {}", text));
    if (text.find('.') == text.npos) {
      std::int64_t whole = 0;
      if (const auto [stop, error] = std::from_chars(text.data(), end, whole); error != std::errc() || stop != end)
        refuse(fmt::format("found the number {}", text));
      value.value = whole;
    } else {
      double real = 0;
      if (const auto [stop, error] = std::from_chars(text.data(), end, real); error != std::errc() || stop != end)
        refuse(fmt::format("found the number {}", text));
      value.value = real;
    }
    return value;
  }
  Expression word() {
    const std::string name = tokens_[at_++].text;
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
    }
    return value;
  }

  std::vector<Token> tokens_;
  const std::string& origin_;
  std::size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;
};

}  // namespace

TemplateBody parse_template(std::string_view source, const std::string& origin) {
  return Parser(cut_template(source, origin), origin).whole();
}

}  // namespace spillway
