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
    comparison,
    conditional,
    list,
    tuple,
    object,
    spread  // *values among the arguments of a call
  };
  Kind kind = Kind::literal;
  int line = 0;
  int depth = 1;
  std::string name;     // of a variable, member, filter or test; or a binary operator
  TemplateValue value;  // literal
  // The operand, then arguments. slice: operand, from, to, step (literal none if not given). conditional: then, if, else.
  // comparison: a < b < c.
  std::vector<TemplateExpression> parts;
  std::vector<std::string> names;  // names of arguments by name; operators of a comparison
  std::vector<TemplateExpression> named;
};

// The name of an argument that is **values.
inline constexpr std::string_view kSpreadArguments = "**";

// Names that have a meaning in the macros that read them: such a macro takes what they hold.
enum MacroUses : std::uint8_t { kUsesCaller = 1, kUsesVarargs = 2, kUsesKwargs = 4 };
inline int special_name(std::string_view name) {
  return name == "caller" ? kUsesCaller : name == "varargs" ? kUsesVarargs : name == "kwargs" ? kUsesKwargs : 0;
}

struct TemplateStatement;

struct TemplateBody {
  std::vector<TemplateStatement> statements;
};

struct TemplateStatement {
  enum class Kind : std::uint8_t {
    text,
    output,
    branches,
    loop,
    generation,
    set,
    set_body,
    macro,
    call_block,
    break_loop,
    continue_loop
  };
  Kind kind = Kind::text;
  int line = 0;
  std::string text;  // or the name of a macro
  // loop: the targets. set: the variable, and a member of it. macro: the parameters.
  std::vector<std::string> names;
  // output, set: the value. branches: a condition for each body, except a last body without one (else). loop: the sequence, and a
  // condition. macro: the default values of its last parameters. call_block: the call.
  std::vector<TemplateExpression> expressions;
  // loop: the body, and the body for no items. call_block: a body of one statement, the macro that is caller().
  std::vector<TemplateBody> bodies;
  int uses = 0;  // macro, generation: MacroUses
};

struct ParsedTemplate {
  TemplateBody body;
  bool has_generation_tags = false;
};

ParsedTemplate parse_template(std::string_view source, const std::string& origin);

}  // namespace spillway
