// Whole steps on the emulated GPU under plans of three tiers. The bits do not depend on how far lanes run ahead of the device, on
// how late it is, on where a block's state rests or where it is updated; and a step that is given up leaves its state whole.
// Not here: the command on it (tests/command/gpu_test.py), kernels alone (kernels_test.cpp).
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "models/cuda/cuda_scratch.h"
#include "tests/offload/small_training.h"

namespace spillway {
namespace {

constexpr int kSteps = 2;

class TrainingOnGpu : public testing::Test {
 protected:
  TrainingOnGpu() : model_("llama_gqa", DType::bfloat16, 1, 12, 2, std::nullopt, cuda::scratch_bytes) {
    model_.other_device = [this] {
      ::setenv("SPILLWAY_SIMT_SEED", std::to_string(seed_).c_str(), 1);
      return make_cuda_device(0);
    };
    directory_ = std::filesystem::temp_directory_path() / ("spillway_gpu_" + std::to_string(::getpid()));
    std::filesystem::create_directories(directory_);
  }
  ~TrainingOnGpu() override { std::filesystem::remove_all(directory_); }

  Choices choices(Tier rests, Tier updates, UpdateTime update) const {
    Choices choices = uniform_choices(model_, 0, StateForm::exact, 2, true, rests);
    choices.chain = Chain::device_host_nvme;
    choices.update_tier = updates;
    choices.update = update;
    choices.slots = rests == Tier::nvme ? 2 : 1;
    set_all(choices.units, &UnitPlace::spill, Tier::host);
    return choices;
  }
  Result trained(const Choices& choices, std::size_t ahead) {
    SmallTraining training(model_, plan_of(model_, choices), directory_.string());
    training.set_ahead(ahead);
    training.load_weights();
    Result result = training.train(kSteps);
    EXPECT_EQ(training.last().peak, training.plan().peak);
    // A step that speculates and clips runs twice.
    if (!speculates(choices)) {
      EXPECT_EQ(training.last().moved, planned_moves(training.plan()));
    }
    return result;
  }
  // Bytes over each link in a step of the steady run.
  static By<Lane, Bytes> planned_moves(const Plan& plan) {
    By<Lane, Bytes> moved;
    for (const Op& op : plan.step.ops)
      if (op.kind == OpKind::move) moved[op.lane] += op.bytes * times_in(op.when, turns_of(plan.choices));
    return moved;
  }

  SmallModel model_;
  int seed_ = 0;
  std::filesystem::path directory_;
};

TEST_F(TrainingOnGpu, RunsAheadByAnyNumberWithTheSameBits) {
  const Choices plain = choices(Tier::device, Tier::device, UpdateTime::after);
  const Result in_core = trained(plain, 1);
  for (const std::size_t ahead : {2, 64}) EXPECT_TRUE(trained(plain, ahead) == in_core) << ahead;
  const Choices below[] = {
      choices(Tier::host, Tier::host, UpdateTime::after), choices(Tier::host, Tier::device, UpdateTime::in_next_forward),
      choices(Tier::nvme, Tier::host, UpdateTime::in_backward), choices(Tier::nvme, Tier::device, UpdateTime::after)};
  for (const Choices& placed : below) {
    for (const std::size_t ahead : {1, 3, 64}) {
      ++seed_;
      EXPECT_TRUE(trained(placed, ahead) == in_core) << "seed " << seed_ << ", " << ahead << " ahead";
    }
  }
}

// Lanes wait only for one another: a plan in which one lane forgets to wait for another is refused.
TEST_F(TrainingOnGpu, APlanWithoutTheWaitsBetweenTwoLanesIsRefused) {
  int pairs = 0;
  for (const Tier updates : {Tier::host, Tier::device}) {
    const Choices placed = choices(Tier::nvme, updates, UpdateTime::in_next_forward);
    const Plan good = plan_of(model_, placed);
    const UnitGraph& graph = model_.of(good).graph;
    EXPECT_NO_THROW(validate(good, graph));
    for (const Lane waiting : kAll<Lane>) {
      for (const Lane awaited : kAll<Lane>) {
        Plan bad = good;
        std::size_t removed = 0;
        for (Op& op : bad.step.ops) {
          if (op.lane == waiting)
            removed += std::erase_if(
                op.waits, [&](const Wait& wait) { return good.step.ops[static_cast<std::size_t>(wait.op)].lane == awaited; });
        }
        if (removed == 0) continue;
        ++pairs;
        EXPECT_THROW(validate(bad, graph), Error) << name_of(waiting) << " without waits for " << name_of(awaited);
      }
    }
  }
  EXPECT_GT(pairs, 12);
}

// The next step is already enqueued when this one's loss comes back as not a number: neither step leaves anything behind.
TEST_F(TrainingOnGpu, AStepGivenUpWhileTheNextIsEnqueuedLeavesTheOneBefore) {
  for (const Tier updates : {Tier::host, Tier::device}) {
    const Choices placed = choices(Tier::host, updates, UpdateTime::after);
    SmallTraining training(model_, plan_of(model_, placed), directory_.string());
    SmallTraining plain(model_, plan_of(model_, placed), directory_.string());
    for (SmallTraining* each : {&training, &plain}) each->load_weights();
    training.submit(1);
    EXPECT_EQ(training.executor().wait().stopped, "");
    plain.train(1);
    StepSettings settings = training.settings(2);
    settings.counted_tokens = 0;
    training.executor().submit(settings, training.data().of_step(1));
    training.submit(3);
    const StepOutcome outcome = training.executor().wait();
    EXPECT_NE(outcome.stopped, "");
    EXPECT_TRUE(outcome.state_intact);
    training.executor().wait();
    EXPECT_TRUE(training.state() == plain.state());
  }
}

}  // namespace
}  // namespace spillway
