#include "trainer/run/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

namespace spillway {
namespace {

const std::vector<float> kLogits = {0.0f, 2.0f, 1.0f, 2.0f, -1.0f};

std::map<std::int32_t, double> shares(const SamplingOptions& options, int draws = 40000) {
  Sampler sampler(options);
  std::map<std::int32_t, double> result;
  for (int i = 0; i < draws; ++i) result[sampler.pick(kLogits, 0, static_cast<std::uint64_t>(i))] += 1.0 / draws;
  return result;
}

TEST(Sampler, GreedyTakesTheLikeliestAndOfEqualOnesTheFirst) {
  Sampler sampler({});
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_EQ(sampler.pick(kLogits, i, i), 1);
}

TEST(Sampler, DrawsWithTheProbabilitiesOfTheSoftmax) {
  for (const double temperature : {0.5, 1.0, 3.0}) {
    double total = 0;
    for (const float logit : kLogits) total += std::exp(static_cast<double>(logit) / temperature);
    const auto drawn = shares({.temperature = temperature, .seed = 7});
    for (std::size_t i = 0; i < kLogits.size(); ++i) {
      const double p = std::exp(static_cast<double>(kLogits[i]) / temperature) / total;
      const auto found = drawn.find(static_cast<std::int32_t>(i));
      // Tolerance: five standard deviations of the share in 40,000 draws.
      EXPECT_NEAR(found == drawn.end() ? 0 : found->second, p, 5 * std::sqrt(p * (1 - p) / 40000)) << i << " at " << temperature;
    }
  }
}

TEST(Sampler, TopKAndTopPLeaveTheLikeliest) {
  const auto tokens = [](const SamplingOptions& options) {
    std::set<std::int32_t> all;
    for (const auto& [token, share] : shares(options)) all.insert(token);
    return all;
  };
  EXPECT_EQ(tokens({.temperature = 1, .top_k = 1}), (std::set<std::int32_t>{1}));
  EXPECT_EQ(tokens({.temperature = 1, .top_k = 3}), (std::set<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(tokens({.temperature = 1, .top_k = 100}).size(), 5u);
  // The softmax is 0.39, 0.39, 0.14, 0.05, 0.02.
  EXPECT_EQ(tokens({.temperature = 1, .top_p = 0.3}), (std::set<std::int32_t>{1}));
  EXPECT_EQ(tokens({.temperature = 1, .top_p = 0.7}), (std::set<std::int32_t>{1, 3}));
  EXPECT_EQ(tokens({.temperature = 1, .top_p = 0.9}), (std::set<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(tokens({.temperature = 1, .top_p = 1e-9}), (std::set<std::int32_t>{1}));
}

TEST(Sampler, DependsOnSeedSequenceAndPositionAlone) {
  const auto drawn = [](std::uint64_t seed, std::uint64_t sequence) {
    Sampler sampler({.temperature = 2, .seed = seed});
    std::vector<std::int32_t> tokens;
    for (std::uint64_t i = 0; i < 100; ++i) tokens.push_back(sampler.pick(kLogits, sequence, i));
    return tokens;
  };
  EXPECT_EQ(drawn(1, 0), drawn(1, 0));
  EXPECT_NE(drawn(1, 0), drawn(2, 0));
  EXPECT_NE(drawn(1, 0), drawn(1, 1));
}

}  // namespace
}  // namespace spillway
