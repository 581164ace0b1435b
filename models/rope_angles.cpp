#include "models/rope_angles.h"

#include <cmath>
#include <numbers>
#include <vector>

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

// Frequencies of the pairs of elements [D/2], after the scaling that the configuration asks for.
std::vector<float> rope_frequencies(const Rope& rope, std::int64_t head_dim) {
  std::vector<float> frequencies;
  for (std::int64_t j = 0; j < head_dim / 2; ++j) {
    double frequency = std::pow(rope.theta, -2.0 * static_cast<double>(j) / static_cast<double>(head_dim));
    if (rope.scaling.kind == RopeScaling::Kind::linear) frequency /= rope.scaling.factor;
    if (rope.scaling.kind == RopeScaling::Kind::llama3) frequency = llama3_frequency(rope.scaling, frequency);
    frequencies.push_back(static_cast<float>(frequency));
  }
  return frequencies;
}

}  // namespace

void fill_rope_tables(const Rope& rope, std::int64_t head_dim, std::int64_t sequence, std::span<float> cosine,
                      std::span<float> sine) {
  const std::vector<float> frequencies = rope_frequencies(rope, head_dim);
  std::size_t at = 0;
  for (std::int64_t position = 0; position < sequence; ++position) {
    for (const float frequency : frequencies) {
      // The angle is rounded to fp32, as when the models were trained.
      const float angle = static_cast<float>(position) * frequency;
      cosine[at] = static_cast<float>(std::cos(static_cast<double>(angle)));
      sine[at++] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
}

}  // namespace spillway
