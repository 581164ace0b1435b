#include "models/rope_angles.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <utility>

namespace spillway {
namespace {

// Llama 3 slows long waves down by `factor`, leaves short ones as they are, and goes smoothly from one to the other between.
double llama3_frequency(const RopeScaling& scaling, double frequency) {
  const double original = static_cast<double>(scaling.original_max_positions);
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength > original / scaling.low_freq_factor) return frequency / scaling.factor;
  if (wavelength < original / scaling.high_freq_factor) return frequency;
  const double smooth = (original / wavelength - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - smooth) * frequency / scaling.factor + smooth * frequency;
}

// YaRN divides the frequencies of pairs that turn less than beta_slow times in the original positions by `factor`, leaves those
// that turn more than beta_fast times, and goes linearly in the pair's number between.
class Yarn {
 public:
  Yarn(const Rope& rope, std::int64_t rotated) : factor_(rope.scaling.factor) {
    const RopeScaling& scaling = rope.scaling;
    const double width = static_cast<double>(rotated), original = static_cast<double>(scaling.original_max_positions);
    const auto pair_of = [&](double turns) {
      return width * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(rope.theta));
    };
    low_ = pair_of(scaling.beta_fast), high_ = pair_of(scaling.beta_slow);
    if (scaling.truncate) low_ = std::floor(low_), high_ = std::ceil(high_);
    low_ = std::max(low_, 0.0), high_ = std::min(high_, width - 1);
    if (low_ == high_) high_ += 0.001;
  }
  double frequency(double frequency, double pair) const {
    const double slowed = std::clamp((pair - low_) / (high_ - low_), 0.0, 1.0);
    return frequency / factor_ * slowed + frequency * (1 - slowed);
  }

 private:
  double factor_, low_ = 0, high_ = 0;
};

// Frequencies of the pairs that turn [R/2], after the scaling that the configuration asks for.
std::vector<float> rope_frequencies(const Rope& rope, std::int64_t rotated, std::int64_t sequence) {
  const RopeScaling& scaling = rope.scaling;
  std::optional<Yarn> yarn;
  if (scaling.kind == RopeScaling::Kind::yarn) yarn.emplace(rope, rotated);
  const std::vector<double>& divisors = sequence > scaling.original_max_positions ? scaling.long_factors : scaling.short_factors;
  std::vector<float> frequencies;
  for (std::int64_t j = 0; j < rotated / 2; ++j) {
    double frequency = std::pow(rope.theta, -2.0 * static_cast<double>(j) / static_cast<double>(rotated));
    if (scaling.kind == RopeScaling::Kind::linear) frequency /= scaling.factor;
    if (scaling.kind == RopeScaling::Kind::llama3) frequency = llama3_frequency(scaling, frequency);
    if (scaling.kind == RopeScaling::Kind::longrope) frequency /= divisors[static_cast<std::size_t>(j)];
    if (yarn) frequency = yarn->frequency(frequency, static_cast<double>(j));
    frequencies.push_back(static_cast<float>(frequency));
  }
  return frequencies;
}

std::int64_t rotated_of(const Rope& rope, std::int64_t head_dim) { return rope.rotated > 0 ? rope.rotated : head_dim; }

// What cosine and sine are times.
double table_factor(const Rope& rope, std::int64_t position, TableOf of) {
  const double original = static_cast<double>(rope.scaling.original_max_positions);
  const bool grows = of == TableOf::queries && rope.query_beta > 0;
  return rope.scaling.attention_factor *
         (grows ? 1 + rope.query_beta * std::log1p(std::floor(static_cast<double>(position) / original)) : 1);
}

}  // namespace

void fill_rope_tables(const Rope& rope, std::int64_t head_dim, std::int64_t sequence, TableOf of, std::span<float> cosine,
                      std::span<float> sine) {
  const std::vector<float> frequencies = rope_frequencies(rope, rotated_of(rope, head_dim), sequence);
  std::size_t at = 0;
  for (std::int64_t position = 0; position < sequence; ++position) {
    const double factor = table_factor(rope, position, of), still = factor / rope.scaling.attention_factor;
    for (const float frequency : frequencies) {
      // The angle is rounded to fp32, as when the models were trained.
      const float angle = static_cast<float>(position) * frequency;
      cosine[at] = static_cast<float>(factor * std::cos(static_cast<double>(angle)));
      sine[at++] = static_cast<float>(factor * std::sin(static_cast<double>(angle)));
    }
    const auto end = static_cast<std::size_t>((position + 1) * (head_dim / 2));
    for (; at < end; ++at) cosine[at] = static_cast<float>(still), sine[at] = 0;
  }
}

std::vector<RowRange> rows_of_heads(const Rope& rope, RotaryPairs pairs, std::int64_t first_row, std::int64_t heads,
                                    std::int64_t head_dim) {
  const std::int64_t rotated = rotated_of(rope, head_dim), turning = rotated / 2, still = (head_dim - rotated) / 2;
  const bool neighbours = pairs == RotaryPairs::neighbours;
  if (still == 0 && !neighbours) return {{first_row, heads * head_dim}};
  // From a pair to the next, and within a pair.
  const std::int64_t step = neighbours ? 2 : 1, apart = neighbours ? 1 : turning;
  std::vector<RowRange> order;
  for (std::int64_t head = 0; head < heads; ++head) {
    const std::int64_t row = first_row + head * head_dim;
    for (const std::int64_t half : {0, 1}) {
      order.push_back({row + half * apart, turning, step});
      if (still > 0) order.push_back({row + rotated + half * still, still});
    }
  }
  return order;
}

}  // namespace spillway
