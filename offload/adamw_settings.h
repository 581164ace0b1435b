// The settings of AdamW for a step. Not here: its arithmetic (host_adamw.h), which steps there are (executor.h).
#pragma once

#include <cstdint>

namespace spillway {

struct AdamWSettings {
  std::int64_t step = 1;  // from 1
  double lr = 0, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  double gradient_scale = 1;  // the clip factor, over the loss scale where there is one
  std::uint64_t seed = 0;     // for stochastic rounding
  std::int64_t skipped = 0;   // steps before it that applied nothing: t = step - skipped
};

}  // namespace spillway
