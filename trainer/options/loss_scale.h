// The scale of an fp16 run's losses, step by step, as a pure function: the policies of DeepSpeed and of PyTorch.
// Not here: what is multiplied and divided by it (offload/operations.h), where its state is kept
// (trainer/keep/loss_scale_file.h).
#pragma once

#include <cstdint>
#include <optional>

#include "trainer/options/options.h"

namespace spillway {

// Scales are powers of two between these, so that they change no bit of a gradient but its exponent. What is lower than the least
// leaves nothing of a loss in fp16.
inline constexpr double kLeastLossScale = 0x1p-24, kMostLossScale = 0x1p64;
bool is_loss_scale(double value);

// What a run knows of its scale after so many steps; the steps do not follow from it.
struct LossScaleState {
  double scale = 1;                // of the next step
  std::int64_t hysteresis = 1;     // DeepSpeed's: overflows until one lowers the scale, that one included
  std::int64_t good_steps = 0;     // DeepSpeed's: steps since the last overflow, less one behind it; PyTorch's: since it changed
  std::int64_t skipped_steps = 0;  // all steps so far that overflowed and applied nothing
  bool operator==(const LossScaleState&) const = default;
};

LossScaleState initial_loss_scale(const LossScaleOptions& options);

// The state after one more step; `overflowed`: its gradients were not finite. Nothing: the scale would have to fall below its
// least, and the run ends. Of DeepSpeed's policy that is --min-loss-scale, of PyTorch's, which has none, kLeastLossScale. A scale
// that is fixed never changes.
//   deepspeed: an overflow lowers hysteresis, and from 1 on halves the scale; a good step whose good_steps are a multiple of the
//   window, above 0, doubles the scale and restores hysteresis, which with consecutive_hysteresis every good step does.
//   pytorch: each overflow halves the scale; as many good steps as the window has double it.
std::optional<LossScaleState> next_loss_scale(const LossScaleOptions& options, LossScaleState state, bool overflowed);

}  // namespace spillway
