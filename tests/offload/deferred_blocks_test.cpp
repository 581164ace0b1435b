// Updates in the backward of which some blocks' wait for the next forward: evaluating, flushing and stopping between steps find
// the state that a plain run has. Losses and states of whole runs: trainer/equivalence_test.cpp.
#include <gtest/gtest.h>

#include "tests/offload/small_training.h"
#include "tests/trainer/temporary_directory.h"

namespace spillway {
namespace {

constexpr int kMicroBatches = 2;

// Whether rows of lookups are fetched beside it.
class DeferredBlocks : public ::testing::TestWithParam<bool> {
 protected:
  Choices choices(Tier tier) const {
    Choices choices = uniform_choices(model_, 1, StateForm::exact, kMicroBatches, false, tier);
    choices.order = Order::vertical;
    choices.slots = 1;
    if (tier == Tier::device) return choices;
    choices.update = UpdateTime::in_backward;
    choices.fetches_rows = GetParam();
    int rests = 0;
    for (const ParameterBlock& block : model_.fused.graph.blocks)
      choices.deferred.push_back(!block.looked_up && ++rests % 2 == 0 ? Deferred::yes : Deferred::no);
    return choices;
  }

  const SmallModel model_{"qwen2", DType::bfloat16, 1, 16};
  const TemporaryDirectory directory_;
};
INSTANTIATE_TEST_SUITE_P(Rows, DeferredBlocks, ::testing::Bool());

TEST_P(DeferredBlocks, AreUpdatedInTheForwardAndOthersInTheBackward) {
  const Plan plan = plan_of(model_, choices(Tier::nvme));
  const auto loss = std::ranges::find_if(plan.step.ops, [](const Op& op) { return op.kind == OpKind::loss; });
  std::vector<int> in_forward(model_.fused.graph.blocks.size(), 0), in_backward = in_forward, flushed = in_forward;
  for (const Op& op : plan.step.ops) {
    if (op.kind != OpKind::update) continue;
    const bool before_loss = &op < &*loss;
    EXPECT_EQ(op.condition == Condition::pending, before_loss);
    ++(before_loss ? in_forward : in_backward)[static_cast<std::size_t>(op.block)];
  }
  for (const Op& op : plan.flush.ops) flushed[static_cast<std::size_t>(op.block)] += op.kind == OpKind::update ? 1 : 0;
  for (std::size_t block = 0; block < in_forward.size(); ++block) {
    const bool defers = plan.choices.deferred[block] == Deferred::yes;
    EXPECT_EQ(in_forward[block] > 0, defers);
    EXPECT_EQ(in_backward[block] > 0, !defers);
    EXPECT_EQ(flushed[block], in_forward[block]);
  }
}

TEST_P(DeferredBlocks, EvaluationBetweenStepsChangesNothing) {
  SmallTraining deferring(model_, plan_of(model_, choices(Tier::nvme), true), directory_.path());
  SmallTraining plain(model_, plan_of(model_, choices(Tier::device), true), directory_.path());
  for (SmallTraining* training : {&deferring, &plain}) training->load_weights();
  for (std::int64_t step = 1; step <= 5; ++step) {
    for (SmallTraining* training : {&deferring, &plain}) training->submit(step);
    const StepOutcome ours = deferring.executor().wait(), theirs = plain.executor().wait();
    EXPECT_EQ(ours.loss, theirs.loss);
    EXPECT_EQ(ours.grad_norm, theirs.grad_norm);
    if (step % 2 == 0) continue;
    EXPECT_EQ(deferring.executor().evaluate(deferring.data().of_step(9)), plain.executor().evaluate(plain.data().of_step(9)));
  }
  EXPECT_TRUE(deferring.state() == plain.state());
}

TEST_P(DeferredBlocks, BytesAndPeaksAreThoseOfThePlan) {
  SmallTraining small(model_, plan_of(model_, choices(Tier::nvme)), directory_.path());
  small.load_weights();
  small.train(3);
  Bytes read = 0, written = 0;
  for (const Op& op : small.plan().step.ops) {
    if (op.lane == Lane::nvme_read) read += op.bytes;
    if (op.lane == Lane::nvme_write) written += op.bytes;
  }
  EXPECT_EQ(small.last().nvme_read_bytes, read);
  EXPECT_EQ(small.last().nvme_written_bytes, written);
  EXPECT_EQ(small.last().peak, small.plan().peak);
}

TEST_P(DeferredBlocks, ALossThatIsNotFiniteLeavesTheStepBefore) {
  SmallTraining small(model_, plan_of(model_, choices(Tier::nvme)), directory_.path());
  SmallTraining plain(model_, plan_of(model_, choices(Tier::device)), directory_.path());
  for (SmallTraining* training : {&small, &plain}) training->load_weights();
  small.submit(1);
  EXPECT_EQ(small.executor().wait().stopped, "");
  plain.train(1);
  // The second step's loss is divided by nothing: it is not finite. What waited of the first has been applied in its forward.
  StepSettings settings = small.settings(2);
  settings.counted_tokens = 0;
  small.executor().submit(settings, small.data().of_step(1));
  const StepOutcome outcome = small.executor().wait();
  EXPECT_NE(outcome.stopped, "");
  EXPECT_TRUE(outcome.state_intact);
  EXPECT_TRUE(small.state() == plain.state());
}

}  // namespace
}  // namespace spillway
