// Compares generation with a whole forward: the logits of every position, in whatever parts the tokens come, are those that an
// independent implementation computed for the whole text (fp32), and those of a forward without a cache (bf16).
//
// Legend: B sequences of T tokens, V vocabulary.
#include "trainer/run/cached_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "files/safetensors.h"
#include "memory/base/error.h"
#include "models/config.h"
#include "tests/golden.h"
#include "tests/trainer/temporary_directory.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

struct GoldenText {
  explicit GoldenText(const std::string& name) : directory(golden_directory(name)) {
    const SafetensorsReader golden(directory / "golden.safetensors");
    const StoredTensor* expected = golden.find("logits");
    length = expected->shape[1];
    vocabulary = expected->shape[2];
    tokens = golden_tokens(golden, "tokens");
    tokens.resize(static_cast<std::size_t>(length));  // tokens of the first sequence of the first step
    logits.resize(static_cast<std::size_t>(length * vocabulary));
    golden.read(*expected, 0, logits);
  }
  std::span<const float> logits_at(std::int64_t position) const {
    return std::span(logits).subspan(static_cast<std::size_t>(position * vocabulary), static_cast<std::size_t>(vocabulary));
  }

  fs::path directory;
  std::int64_t length = 0, vocabulary = 0;
  std::vector<std::int32_t> tokens;  // [T]
  std::vector<float> logits;         // [T,V]
};

RunOptions options_for(const fs::path& model, DType dtype) {
  RunOptions options;
  options.model.model = model.string();
  options.precision.dtype = dtype;
  options.memory.budget[Tier::device] = 64 * kMiB;
  return options;
}

double largest_difference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return HUGE_VAL;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

class CachedModelOf : public ::testing::TestWithParam<std::string> {};

// Allowed difference between a logit and the golden one: doubled, because keys come back from the cache.
constexpr double kLargest = 4e-5;

TEST_P(CachedModelOf, LogitsAreTheGoldenOnes) {
  const GoldenText text(GetParam());
  const RunOptions options = options_for(text.directory, DType::float32);
  for (const std::int64_t prompt : {std::int64_t{1}, std::int64_t{5}, text.length}) {
    for (const std::int64_t rows : {1, 3, 512}) {
      CachedModel model({.options = options, .step = {}, .context = text.length, .longest_prompt = prompt, .most_rows = rows});
      const auto given = std::span(text.tokens).first(static_cast<std::size_t>(prompt));
      double worst = largest_difference(model.begin(given), text.logits_at(prompt - 1));
      for (std::int64_t at = prompt; at < text.length; ++at) {
        worst = std::max(worst, largest_difference(model.next(text.tokens[static_cast<std::size_t>(at)]), text.logits_at(at)));
      }
      EXPECT_LT(worst, kLargest) << "prompt of " << prompt << ", " << rows << " rows at a time";
    }
  }
}

// In bf16 a forward without a cache is the reference: it rounds at the same places, so that only a few roundings go the other
// way.
TEST_P(CachedModelOf, TokenByTokenIsLikeAllAtOnce) {
  const GoldenText text(GetParam());
  if (read_model_config((text.directory / "config.json").string()).experts > 0)
    GTEST_SKIP() << "a rounding that goes the other way may send a row to another expert; in fp32 logits are compared above";
  const RunOptions options = options_for(text.directory, DType::bfloat16);
  CachedModel whole({.options = options, .step = {}, .context = text.length, .longest_prompt = text.length});
  CachedModel model({.options = options, .step = {}, .context = text.length, .longest_prompt = 1});
  double scale = 0;
  for (const float logit : text.logits) scale = std::max(scale, std::abs(static_cast<double>(logit)));
  for (std::int64_t at = 0; at < text.length; ++at) {
    const auto begun = std::span(text.tokens).first(static_cast<std::size_t>(at + 1));
    const std::span<const float> logits = at == 0 ? model.begin(begun) : model.next(begun.back());
    EXPECT_LT(largest_difference(logits, whole.begin(begun)), 0.05 * scale) << at;
  }
}

TEST_P(CachedModelOf, BitsDoNotDependOnWhereWeightsRest) {
  const GoldenText text(GetParam());
  const TemporaryDirectory nvme;
  RunOptions options = options_for(text.directory, DType::bfloat16);
  const CachedModelRequest request{.options = options, .step = {}, .context = text.length, .longest_prompt = 4};
  const auto all = [&](CachedModel& model) {
    std::vector<float> values;
    const auto keep = [&](std::span<const float> logits) { values.insert(values.end(), logits.begin(), logits.end()); };
    keep(model.begin(std::span(text.tokens).first(4)));
    for (std::size_t at = 4; at < text.tokens.size(); ++at) keep(model.next(text.tokens[at]));
    return values;
  };
  CachedModel in_core(request);
  EXPECT_EQ(in_core.traffic().nvme, 0);
  const std::vector<float> expected = all(in_core);
  // Finds the smallest budget by trying.
  options.memory.nvme = {{.path = nvme.path(), .size = {}}};
  std::unique_ptr<CachedModel> spilled;
  for (Bytes budget = 32 * kKiB; spilled == nullptr; budget += 4 * kKiB) {
    options.memory.budget[Tier::device] = budget;
    try {
      spilled = std::make_unique<CachedModel>(request);
    } catch (const BudgetError&) {
      ASSERT_LT(budget, in_core.traffic().device);
    }
  }
  EXPECT_GT(spilled->traffic().nvme, 0);
  EXPECT_EQ(all(*spilled), expected);
}

TEST_P(CachedModelOf, APromptForgetsWhatWasBefore) {
  const GoldenText text(GetParam());
  const RunOptions options = options_for(text.directory, DType::float32);
  CachedModel model({.options = options, .step = {}, .context = text.length, .longest_prompt = 6});
  const std::span<const std::int32_t> tokens(text.tokens);
  const auto copy = [](std::span<const float> logits) { return std::vector<float>(logits.begin(), logits.end()); };
  const std::vector<float> first = copy(model.begin(tokens.first(3)));
  model.begin(tokens.subspan(4, 6));
  model.next(tokens[1]);
  EXPECT_EQ(copy(model.begin(tokens.first(3))), first);
  EXPECT_EQ(model.position(), 3);
}

INSTANTIATE_TEST_SUITE_P(Families, CachedModelOf, ::testing::ValuesIn(golden_names()),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace spillway
