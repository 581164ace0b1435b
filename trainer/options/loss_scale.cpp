#include "trainer/options/loss_scale.h"

#include <algorithm>
#include <cmath>

namespace spillway {
namespace {

constexpr double kInitial = 65536, kLeastOfDeepSpeed = 1;
constexpr std::int64_t kHysteresis = 2, kWindowOfDeepSpeed = 1000, kWindowOfPyTorch = 2000;

bool is_of_deepspeed(const LossScaleOptions& options) {
  return options.policy.value_or(LossScalePolicy::deepspeed) == LossScalePolicy::deepspeed;
}
std::int64_t hysteresis_of(const LossScaleOptions& options) { return options.hysteresis.value_or(kHysteresis); }
double grown(double scale) { return std::min(2 * scale, kMostLossScale); }

std::optional<LossScaleState> next_by_deepspeed(const LossScaleOptions& options, LossScaleState state, bool overflowed) {
  const std::int64_t whole = hysteresis_of(options);
  if (overflowed) {
    state.good_steps = 0;
    if (whole > 1 && state.hysteresis > 1) {
      --state.hysteresis;
      return state;
    }
    const double least = options.least.value_or(kLeastOfDeepSpeed);
    if (state.scale <= least) return std::nullopt;
    state.scale = std::max(state.scale / 2, least);
    return state;
  }
  const bool grows = state.good_steps > 0 && state.good_steps % options.window.value_or(kWindowOfDeepSpeed) == 0;
  if (grows) state.scale = grown(state.scale);
  if (grows || options.consecutive_hysteresis) state.hysteresis = whole;
  ++state.good_steps;
  return state;
}

std::optional<LossScaleState> next_by_pytorch(const LossScaleOptions& options, LossScaleState state, bool overflowed) {
  if (overflowed) {
    state.good_steps = 0;
    state.scale /= 2;
    if (state.scale < kLeastLossScale) return std::nullopt;
    return state;
  }
  if (++state.good_steps == options.window.value_or(kWindowOfPyTorch)) {
    state.good_steps = 0;
    state.scale = grown(state.scale);
  }
  return state;
}

}  // namespace

bool is_loss_scale(double value) {
  int exponent = 0;
  return value >= kLeastLossScale && value <= kMostLossScale && std::frexp(value, &exponent) == 0.5;
}

LossScaleState initial_loss_scale(const LossScaleOptions& options) {
  return {.scale = options.fixed.value_or(options.initial.value_or(kInitial)), .hysteresis = hysteresis_of(options)};
}

std::optional<LossScaleState> next_loss_scale(const LossScaleOptions& options, LossScaleState state, bool overflowed) {
  state.skipped_steps += overflowed ? 1 : 0;
  if (options.fixed) {
    state.scale = *options.fixed;
    return state;
  }
  return is_of_deepspeed(options) ? next_by_deepspeed(options, state, overflowed) : next_by_pytorch(options, state, overflowed);
}

}  // namespace spillway
