// Describes in words what bounds a step: which bound binds, its parts, and the choice that it comes from.
// Not here: the bounds themselves (memory/search/bound.h), their values under other choices (plan_lifts.h).
#pragma once

#include <string>

#include "memory/search/bound.h"

namespace spillway {

// One word, for scripts: a lane's name; "drive": its reads and writes together; "lanes": several lanes that slow each other;
// "norm": updates wait for the norm; "gradients": updates wait for gradients alone.
std::string bound_name(const Bound& bound, const Choices& choices);

// Part of a sentence, without the seconds of the bound: "updates wait for the norm ...".
std::string bound_words(const Bound& bound, const Choices& choices);

}  // namespace spillway
