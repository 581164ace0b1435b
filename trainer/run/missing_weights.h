// A model that has a shape and no weights: what is said of it where they are drawn, and where there is nothing to do without.
// Not here: drawing them (models/weights_io.h).
#pragma once

#include <string>

#include "models/catalogue/catalogue.h"
#include "trainer/options/options.h"

namespace spillway {

// A line for the log of a run whose weights are drawn from --seed: that they are, and how to get others. Empty where they are
// read, from the model's directory or from --load.
std::string note_of_drawn_weights(const RunOptions& options, const ResolvedModel& model);

// InputError where --model is a name of the catalogue and no --load says where weights are: numbers drawn at random have nothing
// to say and no loss worth knowing.
void refuse_catalogue_name(const RunOptions& options);

// A sentence without its full stop.
std::string how_to_get_weights();

}  // namespace spillway
