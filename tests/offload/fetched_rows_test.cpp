// Rows that are fetched ahead for lookups: what is read for a row, and that evaluating, flushing and stopping between steps find
// the state that a plain run has. Losses and states of whole runs: trainer/equivalence_test.cpp.
#include "offload/fetched_rows.h"

#include <gtest/gtest.h>


#include "tests/offload/small_training.h"
#include "tests/trainer/temporary_directory.h"

namespace spillway {
namespace {

constexpr int kMicroBatches = 2;

TEST(FetchedRows, AWindowHoldsItsRowAndStaysInTheArray) {
  const SmallModel model("qwen2", DType::bfloat16, 1, 16);
  const UnitGraph& graph = model.tiled.graph;
  const FetchedRows rows(graph);
  ASSERT_EQ(rows.rows(), model.resolved.config.vocab);
  for (std::int32_t token = 0; token < rows.rows(); ++token) {
    const FetchedRow row = rows.row_of(token);
    for (const Bytes each : {2, 4}) {
      const Bytes begin = rows.read_begin(row, each), bytes = rows.read_bytes(each), row_bytes = rows.row_elements() * each;
      EXPECT_EQ(begin % kExtentAlignment, 0);
      EXPECT_EQ(bytes % kExtentAlignment, 0);
      EXPECT_LE(begin, row.element * each);
      EXPECT_GE(begin + bytes, row.element * each + row_bytes);
      EXPECT_LE(begin + bytes, graph.blocks[row.block].elements * each);
      EXPECT_EQ(rows.within(row, each), row.element * each - begin);
    }
  }
  for (const Bytes row_bytes : {128, 1152, 1536, 4096, 8192, 10240}) {
    for (Bytes begin = 0; begin < 64 * row_bytes; begin += row_bytes) {
      EXPECT_GE(begin / kExtentAlignment * kExtentAlignment + row_window(row_bytes), begin + row_bytes);
    }
  }
  EXPECT_EQ(row_window(4096), 4096);  // aligned rows need no more than themselves
}

// A tied embedding, and one of its own.
class FetchedRowsTraining : public ::testing::TestWithParam<std::tuple<std::string, UpdateTime>> {
 protected:
  Choices choices(Tier tier) const {
    Choices choices = uniform_choices(model_, 1, StateForm::exact, kMicroBatches, clip_, tier);
    choices.update = tier == Tier::device ? UpdateTime::after : update_;
    choices.order = Order::vertical;
    choices.slots = 1;
    choices.fetches_rows = tier == Tier::nvme;
    return choices;
  }

  const SmallModel model_{std::get<0>(GetParam()), DType::bfloat16, 1, 16};
  const UpdateTime update_ = std::get<1>(GetParam());
  const bool clip_ = update_ == UpdateTime::in_next_forward;
  const TemporaryDirectory directory_;
};
INSTANTIATE_TEST_SUITE_P(Models, FetchedRowsTraining,
                         ::testing::Combine(::testing::Values("qwen2", "llama_gqa", "gpt2"),
                                            ::testing::Values(UpdateTime::in_backward, UpdateTime::in_next_forward)));

TEST_P(FetchedRowsTraining, EvaluationBetweenStepsChangesNothing) {
  SmallTraining fetching(model_, plan_of(model_, choices(Tier::nvme), true), directory_.path());
  SmallTraining plain(model_, plan_of(model_, choices(Tier::device), true), directory_.path());
  for (SmallTraining* training : {&fetching, &plain}) training->load_weights();
  for (std::int64_t step = 1; step <= 4; ++step) {
    for (SmallTraining* training : {&fetching, &plain}) training->submit(step);
    const StepOutcome ours = fetching.executor().wait(), theirs = plain.executor().wait();
    EXPECT_EQ(ours.loss, theirs.loss);
    EXPECT_EQ(ours.grad_norm, theirs.grad_norm);
    if (step % 2 == 0) continue;
    EXPECT_EQ(fetching.executor().evaluate(fetching.data().of_step(9)), plain.executor().evaluate(plain.data().of_step(9)));
  }
  EXPECT_TRUE(fetching.state() == plain.state());
}

TEST_P(FetchedRowsTraining, BytesAndPeaksAreThoseOfThePlan) {
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

TEST_P(FetchedRowsTraining, ALossThatIsNotFiniteLeavesTheStepBefore) {
  SmallTraining small(model_, plan_of(model_, choices(Tier::nvme)), directory_.path());
  small.load_weights();
  small.submit(1);
  EXPECT_EQ(small.executor().wait().stopped, "");
  SmallTraining plain(model_, plan_of(model_, choices(Tier::device)), directory_.path());
  plain.load_weights();
  plain.train(1);
  // The second step's loss is divided by nothing: it is not finite, and the update of the first still stands.
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
