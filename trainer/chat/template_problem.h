// A fault of a template, on its way from the code that notices it to the code that knows its place.
// Not here: its message (template.h).
#pragma once

#include <string>

namespace spillway {

// A forbidden operation of a template. Code that knows the place in the template catches it and adds the place.
struct TemplateProblem {
  std::string found;
  bool is_lacking = false;  // this version lacks the feature: the template's fault, whatever the row
};

}  // namespace spillway
