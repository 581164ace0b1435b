// A step's loss is not finite while the step before still writes: the stopped step changes nothing of the step before, and does
// not keep its writes from completing.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>

#include "tests/offload/late_writes.h"

namespace spillway {
namespace {

constexpr std::int64_t kSequence = 16, kGood = 2;  // steps
constexpr int kMicroBatches = 2;

struct Case {
  UpdateTime update = UpdateTime::after;
  bool clip = true;
};
constexpr Case kCases[] = {{UpdateTime::after, true}, {UpdateTime::in_backward, false}, {UpdateTime::in_next_forward, true}};

class StoppedRuns : public ::testing::Test {
 protected:
  StoppedRuns() {
    std::string pattern = ::testing::TempDir() + "stopped_runs_XXXXXX";
    directory_ = mkdtemp(pattern.data());
    // The first unit is the last to run backward: by then the step's loss is known, and whether it has stopped the step.
    const CallList& first = (*model_.fused.code.front())[Pass::backward];
    model_.around = std::make_unique<TellingBackend>(model_.backend, first, [this](const PassMemory&) {
      if (++backwards_ == (kGood + 1) * kMicroBatches) gate_.open();
    });
  }
  ~StoppedRuns() override { std::filesystem::remove_all(directory_); }

  // Weights rest on the device, and no two buffers of a step share a place: so a forward waits for no write of the step before.
  Plan plan_for(const Case& of, int slots) const {
    Choices choices = uniform_choices(model_, 1, StateForm::exact, kMicroBatches, of.clip, Tier::device);
    set_order(choices, Order::vertical);
    choices.update = of.update;
    choices.slots = slots;
    choices.durable_every = 1;
    set_all(choices.blocks, &BlockPlace::optimizer, Tier::nvme);
    Plan plan = plan_of(model_, choices);
    Bytes& end = plan.peak[Tier::device];
    for (Buffer& buffer : plan.step.buffers) {
      if (buffer.tier == Tier::device && buffer.first_op >= 0) buffer.offset = std::exchange(end, end + buffer.bytes);
    }
    derive_waits(plan);
    return plan;
  }

  StoreOptions with_late_writes(const Plan& plan) {
    StoreOptions options;
    options.decorate = [this, late = extents_of_write(plan, 1)](std::unique_ptr<IoQueue> queue) -> std::unique_ptr<IoQueue> {
      return std::make_unique<LateWrites>(std::move(queue), late, gate_);
    };
    return options;
  }

  // Trains kGood steps, and another that is stopped while the last writes of the steps before are still to come.
  void train_into_a_stop(SmallTraining& small) {
    const bool waits = small.plan().choices.update == UpdateTime::in_next_forward;
    std::int64_t submitted = 0;
    // Where updates wait, the step that stops makes the updates of the step before.
    while (submitted < (waits ? kGood : kGood - 1)) {
      small.submit(++submitted);
      EXPECT_EQ(small.executor().wait().stopped, "");
    }
    gate_.close();
    if (!waits) small.submit(++submitted);
    StepSettings infinite = small.settings(kGood + 1);
    infinite.counted_tokens = 0;
    small.executor().submit(infinite, small.data().of_step(kGood));
    if (!waits) {
      EXPECT_EQ(small.executor().wait().stopped, "");
    }
    const StepOutcome outcome = small.executor().wait();
    EXPECT_EQ(outcome.step, kGood + 1);
    EXPECT_NE(outcome.stopped, "");  // by the loss, or by a gradient, which is not finite either
    EXPECT_TRUE(outcome.state_intact);
    EXPECT_TRUE(gate_.held_and_opened());
  }

  std::vector<std::vector<std::byte>> state_without_the_stop(const Plan& plan) {
    SmallTraining small(model_, plan, directory_);
    small.load_weights();
    return small.train(kGood).state;
  }

  SmallModel model_{"llama_gqa", DType::bfloat16, 1, kSequence};
  Gate gate_;
  std::atomic<int> backwards_{0};
  std::string directory_;
};

TEST_F(StoppedRuns, lose_nothing_of_the_step_before) {
  for (const Case& of : kCases) {
    SCOPED_TRACE(name_of(of.update));
    const Plan plan = plan_for(of, 1);
    const auto expected = state_without_the_stop(plan);
    backwards_ = 0;
    SmallTraining small(model_, plan, directory_, with_late_writes(plan));
    small.load_weights();
    train_into_a_stop(small);
    EXPECT_TRUE(small.state() == expected);
  }
}

TEST_F(StoppedRuns, leave_the_step_before_to_be_durable) {
  for (const Case& of : kCases) {
    SCOPED_TRACE(name_of(of.update));
    const Plan plan = plan_for(of, 2);
    const auto expected = state_without_the_stop(plan);
    backwards_ = 0;
    DurabilityOptions durability{
        .identity = {}, .layout = durable_layout(plan, model_.of(plan).graph), .interval = 1, .from = {}};
    StoreOptions options = with_late_writes(plan);
    options.directories = {{directory_, 0}};
    options.bytes = durability.layout.store_bytes;
    options.identity = StoreIdentity{
        .store_id = 5, .records_begin = durability.layout.records_begin, .place_bytes = durability.layout.place_bytes};
    Store store(options);
    durability.identity = identify_store(std::array{directory_});
    {
      SmallTraining small(model_, plan, store, durability);
      small.load_weights();
      small.executor().hold_state(0);
      train_into_a_stop(small);
    }
    durability.from = CommitLog(store, durability.identity).newest();
    ASSERT_TRUE(durability.from);
    EXPECT_EQ(durability.from->step, kGood);
    SmallTraining again(model_, plan, store, durability);
    EXPECT_TRUE(again.state() == expected);
  }
}

}  // namespace
}  // namespace spillway
