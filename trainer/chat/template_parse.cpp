// Parses the statements of a template.
#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "trainer/chat/template_lexer.h"
#include "trainer/chat/template_parse_expression.h"
#include "trainer/chat/template_syntax.h"
#include "trainer/chat/template_tokens.h"

namespace spillway {
namespace {

using Expression = TemplateExpression;
using Place = TemplateExpressionParser::Place;
using Statement = TemplateStatement;
using Token = TemplateToken;

constexpr int kDeepest = 200;  // nesting of statements in the source

class Parser {
 public:
  Parser(std::vector<Token> tokens, const std::string& origin) : tokens_(std::move(tokens), origin), expressions_(tokens_) {}

  ParsedTemplate whole() {
    ParsedTemplate parsed{.body = statements({})};
    if (tokens_.now().kind != Token::Kind::end) tokens_.refuse("found more than the template's end");
    parsed.has_generation_tags = has_generation_tags_;
    return parsed;
  }

 private:
  Expression expression() { return expressions_.expression(place_); }

  // Parses up to a block that begins with one of these words and leaves that block unread.
  TemplateBody statements(std::initializer_list<std::string_view> ends) {
    if (++depth_ > kDeepest) tokens_.refuse("found blocks that are too deep within each other");
    TemplateBody body;
    for (;;) {
      const Token& token = tokens_.now();
      if (token.kind == Token::Kind::text) {
        body.statements.push_back({.kind = Statement::Kind::text, .text = tokens_.next().text});
      } else if (token.kind == Token::Kind::begin_output) {
        tokens_.next();
        body.statements.push_back({.kind = Statement::Kind::output, .expressions = {expression()}});
        tokens_.need(Token::Kind::end_output);
      } else if (token.kind == Token::Kind::begin_block) {
        if (std::ranges::find(ends, tokens_.after().text) != ends.end()) break;
        tokens_.next();
        body.statements.push_back(block());
      } else {
        break;
      }
    }
    --depth_;
    return body;
  }
  // The body of a block whose variables end with it.
  TemplateBody scope(std::initializer_list<std::string_view> ends) {
    const Place place = std::exchange(place_, Place::hard);
    TemplateBody body = statements(ends);
    place_ = place;
    return body;
  }
  // A scope that no break or continue leaves.
  TemplateBody closed_scope(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    TemplateBody body = scope({end});
    loops_ = loops;
    end_block(end);
    return body;
  }
  void end_block(std::string_view word) {
    if (tokens_.now().kind != Token::Kind::begin_block)
      tokens_.refuse(fmt::format("found {}, allowed: {}", tokens_.shown(), word));
    tokens_.next();
    tokens_.need_word(word);
    tokens_.need(Token::Kind::end_block);
  }

  Statement block() {
    const int line = tokens_.now().line;
    Statement made = block_of_kind();
    made.line = line;
    return made;
  }
  Statement block_of_kind() {
    if (tokens_.take_word("if")) return branches();
    if (tokens_.take_word("for")) return loop();
    if (tokens_.take_word("set")) return set();
    if (tokens_.take_word("generation")) return generation();
    if (tokens_.take_word("macro")) return macro();
    if (tokens_.take_word("call")) return call_block();
    for (const auto& [word, kind] :
         {std::pair("break", Statement::Kind::break_loop), std::pair("continue", Statement::Kind::continue_loop)}) {
      if (!tokens_.take_word(word)) continue;
      if (loops_ == 0) tokens_.refuse(fmt::format("found {} outside of a loop", word));
      tokens_.need(Token::Kind::end_block);
      return {.kind = kind};
    }
    tokens_.refuse_kind("{% " + tokens_.now().text + " %}");
  }
  Statement generation() {
    Statement statement{.kind = Statement::Kind::generation};
    has_generation_tags_ = true;
    tokens_.need(Token::Kind::end_block);
    const int before = expressions_.take_special_names();
    statement.bodies.push_back(closed_scope("endgeneration"));
    statement.uses = expressions_.take_special_names();
    expressions_.put_special_names(before | statement.uses);
    return statement;
  }
  Statement branches() {
    Statement statement{.kind = Statement::Kind::branches};
    const Place place = std::exchange(place_, Place::soft);
    statement.expressions.push_back(expression());
    tokens_.need(Token::Kind::end_block);
    for (;;) {
      statement.bodies.push_back(statements({"elif", "else", "endif"}));
      if (tokens_.now().kind != Token::Kind::begin_block) tokens_.refuse("found no {% endif %}");
      tokens_.next();
      if (tokens_.take_word("endif")) break;
      if (tokens_.take_word("elif")) {
        statement.expressions.push_back(expression());
        tokens_.need(Token::Kind::end_block);
        continue;
      }
      tokens_.need_word("else");
      tokens_.need(Token::Kind::end_block);
      statement.bodies.push_back(statements({"endif"}));
      place_ = place;
      end_block("endif");
      return statement;
    }
    place_ = place;
    tokens_.need(Token::Kind::end_block);
    return statement;
  }
  Statement loop() {
    Statement statement{.kind = Statement::Kind::loop};
    const bool has_parentheses = tokens_.take_symbol("(");
    do {
      statement.names.push_back(tokens_.need_name());
    } while (tokens_.take_symbol(","));
    if (has_parentheses) tokens_.need_symbol(")");
    tokens_.need_word("in");
    statement.expressions.push_back(expressions_.expression_without_if(place_));
    if (tokens_.take_word("if")) statement.expressions.push_back(expressions_.expression(Place::hard));
    if (tokens_.is_word("recursive")) tokens_.refuse_kind("a recursive loop");
    tokens_.need(Token::Kind::end_block);
    ++loops_;
    statement.bodies.push_back(scope({"else", "endfor"}));
    --loops_;
    if (tokens_.now().kind == Token::Kind::begin_block && tokens_.after().text == "else") {
      tokens_.next();
      tokens_.next();
      tokens_.need(Token::Kind::end_block);
      statement.bodies.push_back(scope({"endfor"}));
    }
    end_block("endfor");
    return statement;
  }
  Statement set() {
    Statement statement{.kind = Statement::Kind::set};
    statement.names.push_back(tokens_.need_name());
    if (tokens_.take_symbol(".")) statement.names.push_back(tokens_.need_name());
    if (tokens_.take_symbol("=")) {
      statement.expressions.push_back(expression());
      tokens_.need(Token::Kind::end_block);
      return statement;
    }
    if (tokens_.is_symbol(",")) tokens_.refuse_kind("set with several names");
    tokens_.need(Token::Kind::end_block);
    statement.kind = Statement::Kind::set_body;
    statement.bodies.push_back(scope({"endset"}));
    end_block("endset");
    return statement;
  }
  Statement macro() {
    Statement statement{.kind = Statement::Kind::macro, .text = tokens_.need_name()};
    tokens_.need_symbol("(");
    parameters(statement);
    macro_body(statement, "endmacro");
    return statement;
  }
  // {% call(a, b) m(x) %} calls m with a macro of these parameters, which m calls as caller(a, b).
  Statement call_block() {
    Statement caller{.kind = Statement::Kind::macro, .text = "caller"};
    if (tokens_.take_symbol("(")) parameters(caller);
    Statement statement{.kind = Statement::Kind::call_block, .expressions = {expression()}};
    if (statement.expressions[0].kind != Expression::Kind::call) tokens_.refuse("found no call in {% call %}");
    macro_body(caller, "endcall");
    statement.bodies.push_back({.statements = {std::move(caller)}});
    return statement;
  }
  void parameters(Statement& macro) {
    while (!tokens_.take_symbol(")")) {
      if (!macro.names.empty()) tokens_.need_symbol(",");
      macro.names.push_back(tokens_.need_name());
      if (tokens_.take_symbol("="))
        macro.expressions.push_back(expressions_.expression(Place::hard));
      else if (!macro.expressions.empty())
        tokens_.refuse("found a parameter without a default value behind one with a default value");
    }
  }
  void macro_body(Statement& macro, std::string_view end) {
    tokens_.need(Token::Kind::end_block);
    const int before = expressions_.take_special_names();
    macro.bodies.push_back(closed_scope(end));
    const int within = expressions_.take_special_names();
    expressions_.put_special_names(before | within);  // a macro that holds another one uses what that one uses
    macro.uses = within;
    for (const std::string& name : macro.names) {
      if (name == "caller" && (within & kUsesCaller) != 0) tokens_.refuse_kind("a macro with a parameter that is named caller");
      macro.uses &= ~special_name(name);
    }
  }

  TemplateTokens tokens_;
  TemplateExpressionParser expressions_;
  Place place_ = Place::hard;
  int depth_ = 0;
  int loops_ = 0;
  bool has_generation_tags_ = false;
};

}  // namespace

ParsedTemplate parse_template(std::string_view source, const std::string& origin) {
  return Parser(cut_template(source, origin), origin).whole();
}

}  // namespace spillway
