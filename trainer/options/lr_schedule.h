// The learning rate of a step as a pure function of the step: nothing is stored, so a resumed run needs only the step.
// Not here: scaling by loss or norm (clipping is part of the optimizer).
#pragma once

#include <cstdint>

#include "trainer/options/options.h"

namespace spillway {

// Steps count from 0. With W warm-up and D decay steps: init + (lr−init)·(s+1)/W for s < W, then, with p = (s−W)/(D−W),
//   constant: lr, for ever;  linear: lr + (min−lr)·p;  cosine: min + (lr−min)·½(1+cos πp);  the last two: min from D on;
//   wsd: lr until D−K, then lr + (min−lr)·(s−(D−K))/K, min from D on (K decay steps; the decay is linear).
// By the rule of DeepSpeed the step that counts is t = s−1, and W is at least 2. Step 0 has the rate init (0 if the decay is a
// cosine), then init + (lr−init)·w for t < W, where w is t/W (linear) or ln(t+1)/ln W (log), then
//   constant (its WarmupLR): lr;  linear (WarmupDecayLR): min + (lr−min)·(D−t)/(D−W), never below min;
//   cosine (WarmupCosineLR): min + (lr−min)·½(1+cos π(t−W+1)/(D−W)), min from t = D−1 on.
class LrSchedule {
 public:
  // D defaults to `train_iters`, W is a fraction of D where one is given, K defaults to a tenth of D (at least 1). Refuses W > D,
  // and for wsd W > D−K; by the rule of DeepSpeed wsd, and a cosine without steps (W = D).
  LrSchedule(const ScheduleOptions& options, std::int64_t train_iters);

  // `skipped`: how many of the steps before it applied nothing (fp16's that overflowed). By the rule of DeepSpeed they do not
  // count, as there; by our own they do.
  double lr(std::int64_t step, std::int64_t skipped = 0) const;

 private:
  double by_deepspeed(std::int64_t step) const;

  double lr_;
  double min_lr_;
  double init_;
  std::int64_t decay_end_;  // D
  std::int64_t warmup_;     // W
  std::int64_t wsd_;        // K
  DecayStyle style_;
  LrRule rule_;
  WarmupStyle warmup_style_;
};

}  // namespace spillway
