#include "trainer/run/missing_weights.h"

#include <fmt/core.h>

#include "memory/base/error.h"

namespace spillway {

std::string how_to_get_weights() {
  return "Download the model's Hugging Face directory (config.json, *.safetensors, tokenizer.json) and give its path to --model";
}

std::string note_of_drawn_weights(const RunOptions& options, const ResolvedModel& model) {
  if (!model.directory.empty() || !options.checkpoint.load.empty()) return {};
  const std::string& name = options.model.model;
  if (options.model.init == WeightInit::random)
    return fmt::format("--init random: weights are drawn from --seed {}; none of {} are read", options.model.seed, name);
  if (!names_catalogue_model(name))
    return fmt::format("{} has no weights beside it: they are drawn from --seed {}", name, options.model.seed);
  return fmt::format(
      "{} is a name of the catalogue, a shape without weights: they are drawn from --seed {}. {} to go on from "
      "trained ones.",
      name, options.model.seed, how_to_get_weights());
}

void refuse_catalogue_name(const RunOptions& options) {
  if (!options.checkpoint.load.empty() || !names_catalogue_model(options.model.model)) return;
  throw InputError(fmt::format("--model: found {}, a name of the catalogue, which is a shape without weights, allowed: a Hugging "
                               "Face directory, or a run by --load DIR",
                               options.model.model),
                   how_to_get_weights() + ".");
}

}  // namespace spillway
