// Updates run in the backward, but those of some blocks wait for the next forward: evaluating, flushing and stopping between
// steps find the state that a plain run has. Losses and states of whole runs: trainer/run/equivalence_test.cpp.
#include <gtest/gtest.h>

#include "tests/offload/beside_plain.h"
#include "tests/trainer/temporary_directory.h"

namespace spillway {
namespace {

constexpr int kMicroBatches = 2;

class DeferredBlocks : public ::testing::Test {
 protected:
  Choices choices(Tier tier) const {
    Choices choices = uniform_choices(model_, 1, StateForm::exact, kMicroBatches, false, tier);
    set_order(choices, Order::vertical);
    choices.slots = 1;
    if (tier == Tier::device) return choices;
    choices.update = UpdateTime::in_backward;
    int rests = 0;
    for (std::size_t block = 0; block < choices.blocks.size(); ++block) {
      const bool is_looked_up = model_.fused.graph.blocks[block].looked_up;
      choices.blocks[block].deferred = !is_looked_up && ++rests % 2 == 0 ? Deferred::yes : Deferred::no;
    }
    return choices;
  }

  const SmallModel model_{"qwen2", DType::bfloat16, 1, 16};
  const TemporaryDirectory directory_;
};

TEST_F(DeferredBlocks, AreUpdatedInTheForwardAndOthersInTheBackward) {
  const Plan plan = plan_of(model_, choices(Tier::nvme));
  const auto loss = std::ranges::find_if(plan.step.ops, [](const Op& op) { return op.kind == OpKind::loss; });
  std::vector<int> in_forward(model_.fused.graph.blocks.size(), 0), in_backward = in_forward, flushed = in_forward;
  for (const Op& op : plan.step.ops) {
    if (op.kind != OpKind::update) continue;
    const bool before_loss = &op < &*loss;
    EXPECT_EQ(op.when == kWaitingUpdates, before_loss);
    ++(before_loss ? in_forward : in_backward)[static_cast<std::size_t>(op.block)];
    flushed[static_cast<std::size_t>(op.block)] += (op.when & kFlush) != 0 ? 1 : 0;
  }
  for (std::size_t block = 0; block < in_forward.size(); ++block) {
    const bool defers = plan.choices.blocks[block].deferred == Deferred::yes;
    EXPECT_EQ(in_forward[block] > 0, defers);
    EXPECT_EQ(in_backward[block] > 0, !defers);
    EXPECT_EQ(flushed[block], in_forward[block]);
  }
}

TEST_F(DeferredBlocks, EvaluationBetweenStepsChangesNothing) {
  expect_evaluation_changes_nothing(model_, choices(Tier::nvme), choices(Tier::device), directory_.path());
}

TEST_F(DeferredBlocks, BytesAndPeaksAreThoseOfThePlan) {
  SmallTraining training(model_, plan_of(model_, choices(Tier::nvme)), directory_.path());
  expect_bytes_and_peaks_of_plan(training);
}

TEST_F(DeferredBlocks, ALossThatIsNotFiniteLeavesTheStepBefore) {
  expect_infinite_loss_leaves_step_before(model_, choices(Tier::nvme), choices(Tier::device), directory_.path());
}

}  // namespace
}  // namespace spillway
