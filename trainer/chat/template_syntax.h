// The parsed form of a template: expressions and statements. Not here: parsing (template_parse.cpp), rendering
// (template_render.cpp).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/chat/template_value.h"

namespace spillway {

struct TemplateExpression {
  enum class Kind : std::uint8_t {
    literal,
    name,
    member,
    index,
    slice,
    call,
    filter,
    test,
    negation,
    minus,
    binary,
    conditional,
    list,
    tuple,
    object
  };
  Kind kind = Kind::literal;
  int line = 0;
  int depth = 1;
  std::string name;     // of a variable, member, filter or test; or a binary operator
  TemplateValue value;  // literal
  // The operand, then arguments. slice: operand, from, to, step (literal none if not given). conditional: then, if, else.
  std::vector<TemplateExpression> parts;
  std::vector<std::string> names;  // names of arguments by name
  std::vector<TemplateExpression> named;
};

struct TemplateStatement;

struct TemplateBody {
  std::vector<TemplateStatement> statements;
};

struct TemplateStatement {
  enum class Kind : std::uint8_t { text, output, branches, loop, scope, set, set_body, break_loop, continue_loop };
  Kind kind = Kind::text;
  std::string text;
  std::vector<std::string> names;  // loop: the targets; set: the variable, and a member of it
  // output, set: the value. branches: a condition for each body, except a last body without one (else). loop: the sequence, and a
  // condition.
  std::vector<TemplateExpression> expressions;
  std::vector<TemplateBody> bodies;  // loop: the body, and the body for no items
};

TemplateBody parse_template(std::string_view source, const std::string& origin);

}  // namespace spillway
