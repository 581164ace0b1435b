// A run directory's copy of standard input, so that the run can go on when nobody gives it a second time.
// Not here: standard input (trainer/data/standard_input.h).
#pragma once

#include <string>

#include "trainer/options/options.h"

namespace spillway {

// Where the run's data are standard input ("-"): copies it to DIR/standard-input/data.jsonl.gz (or another ending), durable on
// return, and puts that path in its place. Nothing otherwise.
void keep_standard_input(const std::string& run_directory, DataOptions& data);

}  // namespace spillway
