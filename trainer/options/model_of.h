// Which model a run has: what --model names or, where a run is loaded without it, the run's own copy of the configuration.
// Not here: the rule by which a name finds a model (models/catalogue/catalogue.h), and how the copies are made
// (trainer/keep/run_files.h).
#pragma once

#include <string_view>

#include "models/catalogue/catalogue.h"
#include "trainer/options/options.h"

namespace spillway {

// Of a run directory: the configuration and the tokenizer that the run was begun with.
inline constexpr std::string_view kKeptConfig = "/begun-with/config.json", kKeptTokenizer = "/begun-with/tokenizer.json";

// InputError where there is no such model. Without a directory, weights are drawn from the seed. Of a run that is loaded they are
// in its state: its model's directory may be gone.
ResolvedModel model_of(const RunOptions& options, Weights weights = Weights::of_directory);

}  // namespace spillway
