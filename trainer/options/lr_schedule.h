// The learning rate of a step as a pure function of the step: nothing is stored, so a resumed run needs only the step.
// Not here: scaling by loss or norm (clipping is part of the optimizer).
#pragma once

#include <cstdint>

#include "trainer/options/options.h"

namespace spillway {

// Steps count from 0. With W warm-up and D decay steps: lr·(s+1)/W for s < W, then, with p = (s−W)/(D−W),
//   constant: lr, for ever;  linear: lr + (min−lr)·p;  cosine: min + (lr−min)·½(1+cos πp);  the last two: min from D on;
//   wsd: lr until D−K, then lr + (min−lr)·(s−(D−K))/K, min from D on (K decay steps; the decay is linear).
class LrSchedule {
 public:
  // D defaults to `train_iters`, W is a fraction of D where one is given, K defaults to a tenth of D (at least 1). Refuses W > D,
  // and for wsd W > D−K.
  LrSchedule(const ScheduleOptions& options, std::int64_t train_iters);

  double lr(std::int64_t step) const;

 private:
  double lr_;
  double min_lr_;
  std::int64_t decay_end_;  // D
  std::int64_t warmup_;     // W
  std::int64_t wsd_;        // K
  DecayStyle style_;
};

}  // namespace spillway
