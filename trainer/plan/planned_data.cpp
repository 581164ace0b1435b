#include "trainer/plan/planned_data.h"

#include "trainer/options/model_of.h"

namespace spillway {

std::optional<BatchSampler> data_before_plan(RunOptions& options) {
  if ((!options.batch.epochs && !options.data.packing) || options.data.data.empty()) return std::nullopt;
  const ModelConfig config = model_of(options, Weights::if_there).config;
  std::optional<BatchSampler> data(training_data(options, seq_length_for(options, config.max_positions), config.vocab));
  settle_by_data(options, *data);
  return data;
}

}  // namespace spillway
