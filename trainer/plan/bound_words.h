// What bounds a step, in words: which bound binds, what it is made of, and which choice it comes from.
// Not here: the bounds themselves (memory/search/bound.h), what other choices would make of them (plan_lifts.h).
#pragma once

#include <string>

#include "memory/search/bound.h"

namespace spillway {

// One word, for scripts: a lane; "drive", where it is its reads and writes together; "lanes", where several slow each other;
// "norm", where updates wait for it; "gradients", where they wait for those alone.
std::string bound_name(const Bound& bound, const Choices& choices);

// "updates wait for the norm ...". Part of a sentence, without the seconds of the bound.
std::string bound_words(const Bound& bound, const Choices& choices);

}  // namespace spillway
