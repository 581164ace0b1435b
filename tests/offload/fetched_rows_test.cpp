// Rows that are fetched ahead for lookups: what is read for a row, and that evaluating, flushing and stopping between steps find
// the state that a plain run has. Losses and states of whole runs: trainer/run/equivalence_test.cpp.
#include "offload/fetched_rows.h"

#include <gtest/gtest.h>

#include "tests/offload/beside_plain.h"
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
    set_order(choices, Order::vertical);
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
  expect_evaluation_changes_nothing(model_, choices(Tier::nvme), choices(Tier::device), directory_.path());
}

TEST_P(FetchedRowsTraining, BytesAndPeaksAreThoseOfThePlan) {
  SmallTraining training(model_, plan_of(model_, choices(Tier::nvme)), directory_.path());
  expect_bytes_and_peaks_of_plan(training);
}

TEST_P(FetchedRowsTraining, ALossThatIsNotFiniteLeavesTheStepBefore) {
  expect_infinite_loss_leaves_step_before(model_, choices(Tier::nvme), choices(Tier::device), directory_.path());
}

}  // namespace
}  // namespace spillway
