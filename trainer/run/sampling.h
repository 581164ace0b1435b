// What a model says while it is trained: samples of text, made by the plan's own evaluation and in its memory. No cache of keys
// and values: each token is a forward over one micro-batch, whose first sequence it is.
// Not here: text from a finished model (generation.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "offload/executor.h"
#include "trainer/options/options.h"
#include "trainer/text/text_codec.h"

namespace spillway {

class TrainingSamples {
 public:
  // InputError where the prompt has no tokens or does not fit a sequence.
  TrainingSamples(const RunOptions& options, std::int64_t seq_length, std::int64_t vocabulary);

  // The prompt and what the model goes on with, greedily, up to the end of a text or of a sequence.
  // Only while no step is under way.
  std::string sample(Executor& executor) const;

 private:
  TextCodec codec_;
  std::string prompt_;
  std::vector<std::int32_t> tokens_;  // of the prompt
  std::int64_t seq_length_;
  std::int64_t most_tokens_;
};

}  // namespace spillway
