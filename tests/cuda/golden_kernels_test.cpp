// Runs every kernel of every golden case, forward and backward, on the operands that training gives it, by the emulated device
// and by the plain loops.
#include <gtest/gtest.h>

#include "models/cpu/cpu_backend.h"
#include "tests/cuda/device_copies.h"
#include "tests/models/comparing_backend.h"

namespace spillway::testing {
namespace {

class GoldenKernels : public ::testing::TestWithParam<std::tuple<std::string, DType, HeadMode>> {};

TEST_P(GoldenKernels, AreThePlainLoops) {
  const auto& [name, dtype, head] = GetParam();
  DeviceCopies on({.seed = 3});
  compare_golden(GoldenCase(name), dtype, head, on, {SavedValues::recomputed});
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenKernels,
                         ::testing::Combine(::testing::ValuesIn(golden_names()),
                                            ::testing::Values(DType::float32, DType::bfloat16),
                                            ::testing::Values(HeadMode::tiled, HeadMode::fused)));

}  // namespace
}  // namespace spillway::testing
