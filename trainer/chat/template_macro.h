// Binds the arguments of a call to the parameters of a macro, as Jinja does.
// Not here: default values, and the macro's text (template_render.cpp).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trainer/chat/template_call.h"
#include "trainer/chat/template_syntax.h"

namespace spillway {

struct MacroArguments {
  std::vector<std::pair<std::string, TemplateValue>> values;  // by name, also of caller, varargs and kwargs where they are used
  std::vector<std::size_t> missing;                           // parameters without an argument: they are not defined, too
};

// Throws a TemplateProblem if there are arguments that the macro does not take.
MacroArguments macro_arguments(const TemplateStatement& macro, const TemplateArguments& arguments);

}  // namespace spillway
