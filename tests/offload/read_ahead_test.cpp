// Reads far ahead of their use change neither the numbers nor the bytes moved.
#include <gtest/gtest.h>

#include "tests/offload/beside_plain.h"
#include "tests/trainer/temporary_directory.h"

namespace spillway {
namespace {

constexpr int kMicroBatches = 2;

class ReadAhead : public ::testing::TestWithParam<UpdateTime> {
 protected:
  static constexpr Bytes kNear = 16 * kKiB, kFar = 512 * kKiB;
  Choices choices(Tier tier, Bytes ahead = kFar) const {
    Choices choices = uniform_choices(model_, 1, StateForm::exact, kMicroBatches, false, tier);
    set_order(choices, Order::vertical);
    choices.slots = 1;
    if (tier == Tier::device) return choices;
    choices.update = GetParam();
    choices.ahead = ahead;
    return choices;
  }

  const SmallModel model_{"qwen2", DType::bfloat16, 1, 16};
  const TemporaryDirectory directory_;
};
INSTANTIATE_TEST_SUITE_P(Updates, ReadAhead,
                         ::testing::Values(UpdateTime::after, UpdateTime::in_backward, UpdateTime::in_next_forward));

// The average number of operations from a read of optimizer state to the update that takes it.
double operations_ahead(const Plan& plan) {
  double ahead = 0, updates = 0;
  std::vector<int> read_by(plan.resident.size() + plan.step.buffers.size(), -1);
  for (int id = 0; id < std::ssize(plan.step.ops); ++id) {
    const Op& op = plan.step.ops[static_cast<std::size_t>(id)];
    for (const Operand& operand : op.operands) {
      if (op.lane == Lane::nvme_read && operand.role == Role::to) read_by[static_cast<std::size_t>(operand.buffer)] = id;
      if (op.kind != OpKind::update || operand.role != Role::state || operand.kind != StateKind::m) continue;
      ahead += id - read_by[static_cast<std::size_t>(operand.buffer)];
      ++updates;
    }
  }
  return ahead / updates;
}

TEST_P(ReadAhead, ComesEarlierAndTakesNoMoreThanWasKeptForIt) {
  const Plan near = plan_of(model_, choices(Tier::nvme, kNear)), far = plan_of(model_, choices(Tier::nvme));
  EXPECT_GT(operations_ahead(far), 2 * operations_ahead(near));
  EXPECT_GT(far.peak[Tier::device], near.peak[Tier::device]);
  // Beside the bytes read ahead there are the next object itself, half as many bytes kept behind, and gaps between buffers.
  EXPECT_LE(far.peak[Tier::device], near.peak[Tier::device] + 2 * kFar);
}

TEST_P(ReadAhead, EvaluationBetweenStepsChangesNothing) {
  expect_evaluation_changes_nothing(model_, choices(Tier::nvme), choices(Tier::device), directory_.path());
}

TEST_P(ReadAhead, BytesAndPeaksAreThoseOfThePlan) {
  SmallTraining training(model_, plan_of(model_, choices(Tier::nvme)), directory_.path());
  expect_bytes_and_peaks_of_plan(training);
}

TEST_P(ReadAhead, ALossThatIsNotFiniteLeavesTheStepBefore) {
  expect_infinite_loss_leaves_step_before(model_, choices(Tier::nvme), choices(Tier::device), directory_.path());
}

}  // namespace
}  // namespace spillway
