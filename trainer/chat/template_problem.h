// What is wrong with a template, from where it is noticed to whoever knows the place. Not here: how it is told (template.h).
#pragma once

#include <string>

namespace spillway {

// What a template may not do; whoever knows the place in the template catches it and says where.
struct TemplateProblem {
  std::string found;
  bool is_lacking = false;  // what this version lacks: the template's fault, whatever the row
};

}  // namespace spillway
