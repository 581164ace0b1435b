// Samples of text from a model in training, made by the plan's own evaluation and in its memory. There is no cache of keys and
// values: each token costs a forward over one micro-batch, in which the text is the first sequence.
// Not here: text from a finished model (generation.h).
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "models/config.h"
#include "offload/executor.h"
#include "trainer/options/options.h"
#include "trainer/text/text_codec.h"

namespace spillway {

class TrainingSamples {
 public:
  // Throws InputError if the prompt has no tokens or does not fit a sequence.
  TrainingSamples(const RunOptions& options, std::int64_t seq_length, const ModelConfig& config);

  // Returns the prompt and its greedy continuation, up to a token that ends the text, of the sequence, or --sample-tokens. Call
  // it only while no step is under way.
  std::string sample(Executor& executor) const;

 private:
  TextCodec codec_;
  std::string prompt_;
  std::vector<std::int32_t> tokens_;  // of the prompt
  std::set<std::int32_t> ends_;
  std::int64_t seq_length_;
  std::int64_t most_tokens_;
};

}  // namespace spillway
