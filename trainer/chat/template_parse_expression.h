// Parses the expressions of a template, by Jinja's precedence.
// Not here: statements (template_parse.cpp), what expressions do (template_render.cpp).
#pragma once

#include <string>
#include <vector>

#include "trainer/chat/template_syntax.h"
#include "trainer/chat/template_tokens.h"

namespace spillway {

struct TemplateSignature;

class TemplateExpressionParser {
 public:
  // In a soft place, an if statement or `a if b else c`, a template may name filters and tests that do not exist, as long as it
  // does not reach them.
  enum class Place : std::uint8_t { hard, soft };

  explicit TemplateExpressionParser(TemplateTokens& tokens) : tokens_(tokens) {}

  TemplateExpression expression(Place place);
  TemplateExpression expression_without_if(Place place);  // for the sequence of a loop

  // The names that are special to macros (MacroUses) and were read since they were last taken.
  int take_special_names() { return std::exchange(special_names_, 0); }
  void put_special_names(int names) { special_names_ |= names; }

 private:
  TemplateExpression make(TemplateExpression::Kind kind, std::string name, std::vector<TemplateExpression> parts) const;
  void add(TemplateExpression& to, TemplateExpression part) const;
  void settle_unknown(Place place);
  void note_unknown(std::string what);
  void go_deeper();
  void check_call(const TemplateSignature* signature, const TemplateExpression& call);

  TemplateExpression whole();
  TemplateExpression either();
  TemplateExpression both();
  TemplateExpression negated();
  TemplateExpression comparison();
  TemplateExpression sum();
  TemplateExpression concatenation();
  TemplateExpression product();
  TemplateExpression signed_value();
  TemplateExpression filter(TemplateExpression value);
  TemplateExpression test(TemplateExpression value);
  bool begins_argument() const;
  enum class Spread : std::uint8_t { refused, allowed };
  void arguments(TemplateExpression& call, Spread spread);
  TemplateExpression postfix(TemplateExpression value);
  TemplateExpression member(TemplateExpression value);
  TemplateExpression subscript(TemplateExpression value);
  TemplateExpression primary();
  TemplateExpression text();
  TemplateExpression tuple();
  TemplateExpression list();
  TemplateExpression object();
  TemplateExpression number();
  TemplateExpression word();

  TemplateTokens& tokens_;
  std::vector<std::string> unknown_;  // filters and tests of this expression that are not in this version
  int depth_ = 0;
  int special_names_ = 0;
};

}  // namespace spillway
