// The time at which the note about slow steps comes, and the names in it.
#include "trainer/show/plan_drift.h"

#include <gtest/gtest.h>

#include "tests/trainer/temporary_directory.h"

namespace spillway {
namespace {

class PlanDriftTest : public testing::Test {
 protected:
  PlanDriftTest() {
    graph_.units = {{.name = "layer 7"}};
    plan_.step.ops = {{{.kind = OpKind::move, .lane = Lane::nvme_read, .unit = 0}},
                      {{.kind = OpKind::forward, .lane = Lane::compute, .unit = 0}},
                      {{.kind = OpKind::backward, .lane = Lane::compute, .unit = 0}}};
    prediction_.step_s = 1;
    prediction_.timeline.spans = {{0, 0.2}, {0.2, 0.6}, {0.6, 1}};
  }
  // A step whose read takes the rest of the time.
  Timeline slow_read(double step_s) const { return {{{0, step_s - 0.8}, {step_s - 0.8, step_s - 0.4}, {step_s - 0.4, step_s}}}; }

  UnitGraph graph_;
  Plan plan_;
  Prediction prediction_;
};

TEST_F(PlanDriftTest, SaysOnceWhichLaneAndOperationsItIs) {
  PlanDrift drift(plan_, graph_, prediction_, 0.25);
  std::vector<std::string> said;
  for (int step = 0; step < 20; ++step) {
    if (const auto message = drift.observe(1.5, slow_read(1.5))) {
      EXPECT_EQ(step, 5);
      said.push_back(*message);
    }
  }
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("steps take 1.50 s, 50 % longer than the planned 1.00 s: most of it on nvme_read (700 ms busy, planned "
                         "200 ms); operations 0 read layer 7 (700 ms, planned 200 ms)"),
            std::string::npos)
      << said[0];
}

TEST_F(PlanDriftTest, SingleSlowStepsAreNoDrift) {
  PlanDrift drift(plan_, graph_, prediction_, 0.25);
  for (int step = 0; step < 30; ++step) {
    const double step_s = step == 0 ? 100 : step % 3 == 0 ? 2 : 1.2;
    EXPECT_FALSE(drift.observe(step_s, slow_read(step_s))) << step;
  }
}

TEST_F(PlanDriftTest, WithoutAThresholdNothingIsSaid) {
  PlanDrift drift(plan_, graph_, prediction_, 0);
  for (int step = 0; step < 30; ++step) EXPECT_FALSE(drift.observe(9, slow_read(9)));
}

}  // namespace
}  // namespace spillway
