// Messages about a model that has a shape but no weights: when they are drawn, and when a command is useless without them.
// Not here: drawing them (models/weights_io.h).
#pragma once

#include <string>

#include "models/catalogue/catalogue.h"
#include "trainer/options/options.h"

namespace spillway {

// A line for the log of a run whose weights are drawn from --seed: says so, and how to get trained ones. Empty if the weights are
// read, from the model's directory or from --load.
std::string note_of_drawn_weights(const RunOptions& options, const ResolvedModel& model);

// Throws InputError if --model is a name of the catalogue and there is no --load to give weights: a model with random weights
// generates nothing sensible and has no meaningful loss.
void refuse_catalogue_name(const RunOptions& options);

// One sentence, without its full stop.
std::string how_to_get_weights();

}  // namespace spillway
