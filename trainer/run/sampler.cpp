#include "trainer/run/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "memory/base/random.h"

namespace spillway {
namespace {

constexpr std::uint64_t kStream = 0x73616d706c65;  // apart from the streams for weights and rounding

// A number in [0, 1) with 53 random bits.
double uniform(std::uint64_t seed, std::uint64_t sequence, std::uint64_t position) {
  const std::uint64_t high = random_bits(seed, position, kStream, 2 * sequence);
  const std::uint64_t low = random_bits(seed, position, kStream, 2 * sequence + 1);
  return static_cast<double>((high << 21) ^ (low >> 11)) * 0x1p-53;
}

}  // namespace

std::int32_t Sampler::pick(std::span<const float> logits, std::uint64_t sequence, std::uint64_t position) {
  if (options_.temperature == 0) return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  candidates_.resize(logits.size());
  std::iota(candidates_.begin(), candidates_.end(), 0);
  if (options_.top_k > 0 && options_.top_k < static_cast<std::int64_t>(candidates_.size())) {
    std::ranges::nth_element(candidates_, candidates_.begin() + options_.top_k, likelier);
    candidates_.resize(static_cast<std::size_t>(options_.top_k));
  }
  std::ranges::sort(candidates_, likelier);
  const double highest = logits[static_cast<std::size_t>(candidates_.front())];
  weights_.clear();
  for (const std::int32_t token : candidates_)
    weights_.push_back(std::exp((logits[static_cast<std::size_t>(token)] - highest) / options_.temperature));
  double total = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  if (options_.top_p < 1) {
    double sum = 0;
    std::size_t kept = 0;
    while (kept < weights_.size() && sum < options_.top_p * total) sum += weights_[kept++];
    weights_.resize(std::max<std::size_t>(1, kept));
    total = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  }
  double left = uniform(options_.seed, sequence, position) * total;
  std::size_t at = 0;
  while (at + 1 < weights_.size() && left >= weights_[at]) left -= weights_[at++];
  return candidates_[at];
}

}  // namespace spillway
