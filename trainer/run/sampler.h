// Chooses the next token from logits. Not here: the source of the logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace spillway {

struct SamplingOptions {
  double temperature = 0;  // 0: always the likeliest token
  std::int64_t top_k = 0;  // choose among the k likeliest only; 0: all
  double top_p = 1;        // choose among the likeliest tokens that together have this probability
  std::uint64_t seed = 0;
};

class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options) : options_(options) {}

  // Depends only on (options, logits, sequence, position). Among equal logits the lowest id counts as the likeliest. The logits
  // must be finite.
  std::int32_t pick(std::span<const float> logits /*[V]*/, std::uint64_t sequence, std::uint64_t position);

 private:
  SamplingOptions options_;
  std::vector<std::int32_t> candidates_;
  std::vector<double> weights_;  // [candidates]
};

}  // namespace spillway
