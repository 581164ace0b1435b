// Runs every kernel of every golden case, forward and backward, on the operands that training gives it, by the CPU's backend and
// by the plain loops.
#include "models/reference/reference_backend.h"

#include <gtest/gtest.h>

#include "models/cpu/cpu_backend.h"
#include "tests/models/comparing_backend.h"
#include "tests/models/golden_case.h"

namespace spillway::testing {
namespace {

class ReferenceTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ReferenceTest, EveryKernelIsThePlainLoops) {
  const GoldenCase golden(GetParam());
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const HeadMode head : {HeadMode::tiled, HeadMode::fused}) {
      ThreadPool pool(2);
      CpuBackend cpu(pool);
      compare_golden(golden, dtype, head, cpu, {SavedValues::kept, SavedValues::recomputed});
    }
  }
}

// The plain loops alone must give the golden losses.
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

INSTANTIATE_TEST_SUITE_P(Golden, ReferenceTest, ::testing::ValuesIn(golden_names()),
                         [](const auto& golden) { return golden.param; });

}  // namespace
}  // namespace spillway::testing
