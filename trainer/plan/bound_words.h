// Describes in words what bounds a step: which bound binds, its parts, and the choice that it comes from.
// Not here: the bounds themselves (memory/search/bound.h), their values under other choices (plan_lifts.h).
#pragma once

#include <string>

#include "memory/search/bound.h"

namespace spillway {

// Returns one word, for scripts: a lane; "drive" for its reads and writes together; "lanes" for two others that slow each other;
// "norm" for updates that wait for it.
std::string bound_name(const Bound& bound);

// Part of a sentence, without the seconds of the bound: "updates wait for the norm ...".
std::string bound_words(const Bound& bound, const Choices& choices);

}  // namespace spillway
