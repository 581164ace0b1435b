// Finds the model of a run: the one that --model names or, if a run is loaded without --model, the run's own copy of the
// configuration.
// Not here: how a name finds a model (models/catalogue/catalogue.h), how the copies are made (trainer/keep/run_files.h).
#pragma once

#include <string_view>

#include "models/catalogue/catalogue.h"
#include "trainer/options/options.h"

namespace spillway {

// Paths within a run directory: the configuration and the tokenizer that the run began with.
inline constexpr std::string_view kKeptConfig = "/begun-with/config.json", kKeptTokenizer = "/begun-with/tokenizer.json";

// Throws InputError if there is no such model. Without a model directory, the weights are drawn from the seed. A loaded run has
// its weights in its own state, so its model's directory may be gone.
ResolvedModel model_of(const RunOptions& options, Weights weights = Weights::of_directory);

}  // namespace spillway
