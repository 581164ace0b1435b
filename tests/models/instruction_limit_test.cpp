// SPILLWAY_INSTRUCTIONS for all tests of this program, and its own.
#include "models/instruction_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "memory/base/error.h"
#include "models/cpu/ops.h"

namespace spillway {
namespace {

class Limit final : public ::testing::Environment {
 public:
  void SetUp() override { limit_instructions_as_asked(); }
};
[[maybe_unused]] const auto* const kLimit = ::testing::AddGlobalTestEnvironment(new Limit);

TEST(InstructionLimit, ThereIsABaseline) {
  const std::vector<std::string> sets = instruction_sets_here();
  ASSERT_FALSE(sets.empty());
  EXPECT_EQ(sets.front(), "baseline");
}

TEST(InstructionLimit, WhatTheProcessorHasNotIsRefused) {
  EXPECT_THROW(limit_instructions("avx1024"), InputError);
  EXPECT_THROW(limit_instructions(""), InputError);
}

TEST(InstructionLimit, HoldsForProducts) {
  const char* const asked = std::getenv("SPILLWAY_INSTRUCTIONS");
  if (asked == nullptr) GTEST_SKIP() << "none is asked for";
  if (std::string(asked) == "baseline" || std::string(asked) == "avx2") {
    EXPECT_EQ(ops::instructions_here(), Instructions::widened);
  }
}

}  // namespace
}  // namespace spillway
