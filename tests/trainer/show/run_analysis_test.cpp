// Findings about a run against its plan, on timelines made by hand. The command: tests/command/report_test.py.
#include "trainer/show/run_analysis.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

RecordedOperation operation(Lane lane, Span planned, Span recorded, std::vector<Wait> waits = {}, Bytes bytes = 0) {
  return {.kind = "forward",
          .of = "layer",
          .lane = lane,
          .micro_batch = 0,
          .bytes = bytes,
          .waits = std::move(waits),
          .planned = planned,
          .recorded = recorded};
}

TEST(RunAnalysis, RequestsThatOverlapCountOnce) {
  RunRecord run;
  run.operations = {operation(Lane::nvme_read, {0, 1}, {0, 3}, {}, 300), operation(Lane::nvme_read, {1, 2}, {0.5, 4}, {}, 100),
                    operation(Lane::nvme_read, {2, 3}, {6, 6}, {}, 100)};
  const LaneUse use = use_of_lane(run, Lane::nvme_read);
  EXPECT_DOUBLE_EQ(use.planned_s, 3);
  EXPECT_DOUBLE_EQ(use.recorded_s, 4);
  EXPECT_EQ(use.bytes, 400);  // the third did not run
  EXPECT_DOUBLE_EQ(use_of_lane(run, Lane::update).recorded_s, 0);
}

TEST(RunAnalysis, CostsAreSortedByWhatIsBeyondPlan) {
  RunRecord run;
  run.operations = {operation(Lane::compute, {0, 5}, {0, 5.5}), operation(Lane::compute, {5, 6}, {5.5, 8.5}),
                    operation(Lane::compute, {6, 9}, {8.5, 9})};
  const auto costs = costliest(run, 2);
  ASSERT_EQ(costs.size(), 2u);
  EXPECT_EQ(costs[0].id, 1);
  EXPECT_DOUBLE_EQ(costs[0].excess_s(), 2);
  EXPECT_EQ(costs[1].id, 0);
}

TEST(RunAnalysis, AStallNamesTheWaitThatEndedLast) {
  RunRecord run;
  run.operations = {operation(Lane::nvme_read, {}, {0, 1}), operation(Lane::nvme_read, {}, {1, 4}),
                    operation(Lane::compute, {}, {0.5, 2}), operation(Lane::compute, {}, {4, 5}, {{0, 0}, {1, 0}}),
                    operation(Lane::compute, {}, {7, 8}, {{3, 0}, {2, -1}})};
  const auto stalls = longest_stalls(run, 10);
  ASSERT_EQ(stalls.size(), 2u);
  EXPECT_EQ(stalls[0].id, 3);
  EXPECT_DOUBLE_EQ(stalls[0].begin_s, 2);
  EXPECT_DOUBLE_EQ(stalls[0].seconds, 2);
  EXPECT_EQ(stalls[0].waited_for, 1);
  EXPECT_EQ(stalls[1].waited_for, -1);
  EXPECT_DOUBLE_EQ(stalled_s(run), 4);
}

TEST(RunAnalysis, TheFirstStepDoesNotCount) {
  RunRecord run;
  run.log.resize(4);
  for (int i = 0; i < 4; ++i) run.log[static_cast<std::size_t>(i)].step_s = i == 0 ? 100 : i;
  EXPECT_EQ(median_of_steps(run, &StepRecord::step_s), 2);
  run.log.resize(1);
  EXPECT_EQ(median_of_steps(run, &StepRecord::step_s), 100);
}

}  // namespace
}  // namespace spillway
