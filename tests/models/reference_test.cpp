// Every kernel of every golden case, forward and backward, on the operands that training gives it: by the CPU's backend and by
// the plain loops.
#include "models/reference/reference_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "models/cpu/cpu_backend.h"
#include "tests/models/golden_case.h"
#include "tests/models/in_core_runner.h"

namespace spillway::testing {
namespace {

// Runs each call twice on the same operands, and goes on with the CPU's results.
class ComparingBackend final : public Backend {
 public:
  explicit ComparingBackend(const ThreadPool& pool) : cpu_(pool) {}
  void prepare(const CompiledModel& model) override { cpu_.prepare(model); }
  void run(const CallList& list, const PassMemory& memory) override {
    for (const KernelCall& call : list) {
      KernelCall one = call;
      std::vector<Written> written;
      for (const OperandUse& operand : operands_of(one.kernel)) {
        std::byte* const at = memory.at(*operand.place);
        if (operand.access == Access::read || at == nullptr) continue;
        written.push_back({at, operand.type, operand.place->space, copy(at, operand.reach), {}});
      }
      const CallList alone{call};
      reference_.run(alone, memory);
      for (Written& w : written) w.expected = copy(w.at, static_cast<Bytes>(w.before.size()));
      for (const Written& w : written) std::memcpy(w.at, w.before.data(), w.before.size());
      cpu_.run(alone, memory);
      for (const Written& w : written) compare(call.kernel, w);
      ++kernels_[call.kernel.index()];
    }
  }
  const std::map<std::size_t, int>& kernels() const { return kernels_; }

 private:
  struct Written {
    std::byte* at;
    DType type;
    Space space;
    std::vector<std::byte> before, expected;
  };
  static std::vector<std::byte> copy(const std::byte* at, Bytes bytes) { return {at, at + bytes}; }

  static double number(const std::byte* data, DType type, std::size_t i) {
    if (type == DType::float32) return reinterpret_cast<const float*>(data)[i];
    return reinterpret_cast<const BFloat16*>(data)[i].to_float();
  }

  // Within what the rounding of sums of this size allows, by the largest of the numbers.
  static void compare(const Kernel& kernel, const Written& w) {
    if (w.space == Space::word) {
      double expected = 0, actual = 0;
      std::memcpy(&expected, w.expected.data(), sizeof(expected));
      std::memcpy(&actual, w.at, sizeof(actual));
      EXPECT_NEAR(actual, expected, 1e-5 * std::abs(expected)) << "kernel " << kernel.index();
      return;
    }
    const std::size_t count = w.expected.size() / static_cast<std::size_t>(size_of(w.type));
    double largest = 0, worst = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const double expected = number(w.expected.data(), w.type, i), actual = number(w.at, w.type, i);
      if (std::isnan(expected) && std::isnan(actual)) continue;  // bytes that nobody wrote
      ASSERT_EQ(std::isfinite(expected), std::isfinite(actual)) << "kernel " << kernel.index() << ", element " << i;
      if (!std::isfinite(expected)) continue;
      largest = std::max(largest, std::abs(expected));
      worst = std::max(worst, std::abs(expected - actual));
    }
    EXPECT_LE(worst, (w.type == DType::float32 ? 2e-5 : 1.0 / 64) * largest) << "kernel " << kernel.index();
  }

  ReferenceBackend reference_;
  CpuBackend cpu_;
  std::map<std::size_t, int> kernels_;
};

class ReferenceTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ReferenceTest, EveryKernelIsThePlainLoops) {
  const GoldenCase golden(GetParam());
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const HeadMode head : {HeadMode::tiled, HeadMode::fused}) {
      ThreadPool pool(2);
      ComparingBackend backend(pool);
      Cuts cuts = canonical_cuts(golden.config);
      if (head == HeadMode::tiled) cuts = {.vocabulary_rows = 96, .mlp_columns = 48, .head_strip = 24};
      InCoreRunner runner(golden.config, {dtype, 2, golden.sequence, head}, cuts, 2, &backend);
      runner.load(SafetensorsReader(golden.directory));
      const auto tokens = std::span(golden.tokens).first(static_cast<std::size_t>(4 * golden.sequence)),
                 targets = std::span(golden.targets).first(tokens.size());
      for (const SavedValues saved : {SavedValues::kept, SavedValues::recomputed}) runner.backward(tokens, targets, saved);
    }
  }
}

// The golden losses by the plain loops alone.
TEST_P(ReferenceTest, TheGoldenCurve) {
  const GoldenCase golden(GetParam());
  ReferenceBackend backend;
  InCoreRunner runner(golden.config, {DType::float32, golden.batch, golden.sequence, HeadMode::tiled},
                      canonical_cuts(golden.config), 2, &backend);
  runner.load(SafetensorsReader(golden.directory));
  for (std::int64_t step = 0; step < golden.steps; ++step) {
    const double loss = runner.backward(golden.of_step(golden.tokens, step), golden.of_step(golden.targets, step));
    const double expected = golden.numbers.at("losses")[static_cast<std::size_t>(step)];
    EXPECT_NEAR(loss, expected, 1e-5 * expected) << "step " << step;
    runner.update(golden.adam(step));
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, ReferenceTest, ::testing::Values("gpt2", "llama_gqa", "qwen2", "qwen3", "gemma2"));

}  // namespace
}  // namespace spillway::testing
