#include "trainer/options/lr_schedule.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "memory/base/error.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

// Rounded up; a product that is whole but for its rounding counts as whole.
std::int64_t share_of(std::int64_t steps, double fraction) {
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(steps) * fraction * (1 - 1e-12)));
}

}  // namespace

LrSchedule::LrSchedule(const ScheduleOptions& options, std::int64_t train_iters)
    : lr_(options.lr),
      min_lr_(options.min_lr),
      init_(options.lr_warmup_init),
      decay_end_(options.lr_decay_iters.value_or(train_iters)),
      warmup_(options.lr_warmup_fraction ? share_of(decay_end_, *options.lr_warmup_fraction) : options.lr_warmup_iters),
      wsd_(options.lr_wsd_decay_iters.value_or(std::max<std::int64_t>(1, decay_end_ / 10))),
      style_(options.lr_decay_style),
      rule_(options.lr_rule),
      warmup_style_(options.lr_warmup_style) {
  if (rule_ == LrRule::deepspeed) warmup_ = std::max<std::int64_t>(2, warmup_);
  if (style_ == DecayStyle::constant) return;
  const std::string_view decay_from =
      options.lr_decay_iters ? "--lr-decay-iters" : "--train-iters, which --lr-decay-iters defaults to";
  if (warmup_ > decay_end_) {
    throw InputError(fmt::format("--lr-warmup-iters: found {}, allowed: at most {} ({})", warmup_, decay_end_, decay_from),
                     "shorten the warm-up, lengthen the decay, or use --lr-decay-style constant");
  }
  if (rule_ == LrRule::deepspeed && style_ == DecayStyle::cosine && warmup_ == decay_end_) {
    throw InputError(fmt::format("--lr-decay-iters: found {}, allowed: more than the {} of warm-up ({})", decay_end_,
                                 counted(warmup_, "step"), decay_from));
  }
  if (style_ == DecayStyle::wsd && wsd_ > decay_end_ - warmup_) {
    throw InputError(fmt::format("--lr-wsd-decay-iters: found {}, allowed: at most {} ({} steps of {} less {} of warm-up)", wsd_,
                                 decay_end_ - warmup_, decay_end_, decay_from, warmup_));
  }
}

double LrSchedule::by_deepspeed(std::int64_t step) const {
  if (step == 0) return style_ == DecayStyle::cosine ? 0 : init_;
  const std::int64_t t = step - 1;
  const auto at = static_cast<double>(t), warmup = static_cast<double>(warmup_);
  if (t < warmup_) {
    const double share = warmup_style_ == WarmupStyle::log ? std::log(at + 1) / std::log(warmup) : at / warmup;
    return init_ + (lr_ - init_) * share;
  }
  if (style_ == DecayStyle::constant) return lr_;
  if (t >= decay_end_) return min_lr_;
  const auto decay = static_cast<double>(decay_end_ - warmup_);
  if (style_ == DecayStyle::linear) return min_lr_ + (lr_ - min_lr_) * static_cast<double>(decay_end_ - t) / decay;
  const double p = static_cast<double>(t - warmup_ + 1) / decay;
  return min_lr_ + (lr_ - min_lr_) * 0.5 * (1 + std::cos(std::numbers::pi * p));
}

double LrSchedule::lr(std::int64_t step, std::int64_t skipped) const {
  if (rule_ == LrRule::deepspeed) return by_deepspeed(step - skipped);
  if (step < warmup_) return init_ + (lr_ - init_) * static_cast<double>(step + 1) / static_cast<double>(warmup_);
  if (style_ == DecayStyle::constant) return lr_;
  if (step >= decay_end_) return min_lr_;
  const std::int64_t first = style_ == DecayStyle::wsd ? decay_end_ - wsd_ : warmup_;
  if (step < first) return lr_;
  const double p = static_cast<double>(step - first) / static_cast<double>(decay_end_ - first);
  if (style_ == DecayStyle::cosine) return min_lr_ + (lr_ - min_lr_) * 0.5 * (1 + std::cos(std::numbers::pi * p));
  return lr_ + (min_lr_ - lr_) * p;
}

}  // namespace spillway
