// The plan of a large model, which has many operations and is expensive to build, still uses the memory of its machine.
#include <gtest/gtest.h>

#include "trainer/plan/prepared_run.h"

namespace spillway {
namespace {

TEST(FilledTiers, OfAServerHaveLittleRoomLeft) {
  RunOptions options;
  options.model.model = "llama-3.1-405b";
  options.batch = {.micro_batch_size = 1, .global_batch_size = 64, .seq_length = 2048};
  options.memory.nvme = {{"/not/there", 20 * 1024 * kGiB}};
  options.memory.profile = "h200-server";
  const PreparedModel model(options, Where::anywhere);
  const PlannedRun run = plan_run(options, model, Where::anywhere);
  ASSERT_TRUE(run.outcome.plan);
  for (const Tier tier : {Tier::device, Tier::host}) {
    const Bytes peak = run.outcome.plan->peak[tier], budget = run.request.budgets[tier];
    EXPECT_LE(peak, budget) << name_of(tier);
    EXPECT_GT(peak, budget / 100 * 95) << name_of(tier);
  }
}

}  // namespace
}  // namespace spillway
