// The choice of the next token from logits. Not here: where the logits come from.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace spillway {

struct SamplingOptions {
  double temperature = 0;  // 0: the likeliest token, always
  std::int64_t top_k = 0;  // among the k likeliest only; 0: all
  double top_p = 1;        // among the likeliest that together have this probability only
  std::uint64_t seed = 0;
};

class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options) : options_(options) {}

  // A function of (options, logits, sequence, position) alone. Of equal logits the lowest id counts as the
  // likelier one. The logits are finite.
  std::int32_t pick(std::span<const float> logits /*[V]*/, std::uint64_t sequence, std::uint64_t position);

 private:
  SamplingOptions options_;
  std::vector<std::int32_t> candidates_;
  std::vector<double> weights_;  // [candidates]
};

}  // namespace spillway
