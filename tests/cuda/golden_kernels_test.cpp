// Every kernel of every golden case, forward and backward, on the operands that training gives it: by the emulated device and by
// the plain loops.
#include <gtest/gtest.h>

#include "models/cpu/cpu_backend.h"
#include "tests/cuda/device_copies.h"
#include "tests/models/comparing_backend.h"
#include "tests/models/golden_case.h"
#include "tests/models/in_core_runner.h"

namespace spillway::testing {
namespace {

class GoldenKernels : public ::testing::TestWithParam<std::tuple<const char*, DType, HeadMode>> {};

TEST_P(GoldenKernels, AreThePlainLoops) {
  const auto& [name, dtype, head] = GetParam();
  const GoldenCase golden(name);
  DeviceCopies on({.seed = 3});
  ComparingBackend backend(on);
  Cuts cuts = canonical_cuts(golden.config);
  if (head == HeadMode::tiled) cuts = {.vocabulary_rows = 96, .mlp_columns = 48, .head_strip = 24};
  InCoreRunner runner(golden.config, {dtype, 2, golden.sequence, head}, cuts, 2, &backend);
  runner.load(SafetensorsReader(golden.directory));
  const auto tokens = std::span(golden.tokens).first(static_cast<std::size_t>(4 * golden.sequence)),
             targets = std::span(golden.targets).first(tokens.size());
  runner.backward(tokens, targets, SavedValues::recomputed);
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenKernels,
                         ::testing::Combine(::testing::Values("gpt2", "llama_gqa", "qwen2", "qwen3", "gemma2"),
                                            ::testing::Values(DType::float32, DType::bfloat16),
                                            ::testing::Values(HeadMode::tiled, HeadMode::fused)));

}  // namespace
}  // namespace spillway::testing
