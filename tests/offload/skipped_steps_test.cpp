// A step whose gradients are not finite, in a run that goes on: nothing of it is applied, wherever the state rests, and it counts
// and is durable like any other. And the scale that makes fp16's gradients finite changes no bit of any others.
#include "tests/offload/durable_training.h"

namespace spillway {
namespace {

constexpr std::int64_t kSkipped = 2;  // the step

class SkippedSteps : public DurableTraining {
 protected:
  // The step's settings in a run that goes on past kSkipped, whose loss and gradients are infinite.
  static StepSettings settings(const SmallTraining& small, std::int64_t step) {
    StepSettings settings = small.settings(step);
    settings.skips = true;
    settings.adamw.skipped = step > kSkipped ? 1 : 0;
    if (step == kSkipped) settings.counted_tokens = 0;
    return settings;
  }
  static void take(SmallTraining& small, std::int64_t step) {
    small.executor().submit(settings(small, step), small.data().of_step(step - 1));
    const StepOutcome outcome = small.executor().wait();
    EXPECT_EQ(outcome.step, step);
    EXPECT_EQ(outcome.stopped, "");
    EXPECT_EQ(outcome.skipped.empty(), step != kSkipped) << outcome.skipped;
  }

  // The state after each step in core, where the skipped one is left out.
  std::vector<std::uint64_t> states_without_it(const DurableCase& of) {
    SmallTraining small(model_, plan_of(model_, uniform_choices(model_, 1, of.form, kMicroBatches, of.clip, Tier::device)),
                        directory_);
    small.load_weights();
    std::vector<std::uint64_t> states = {digest(small.state())};
    for (std::int64_t step = 1; step <= kSteps; ++step) {
      if (step != kSkipped) take(small, step);
      states.push_back(digest(small.state()));
    }
    return states;
  }
};

TEST_F(SkippedSteps, apply_nothing_and_are_durable) {
  int tried = 0;
  for (const DurableCase& of : durable_cases()) {
    if (of.update == UpdateTime::in_backward) continue;
    SCOPED_TRACE(of.name);
    ++tried;
    const Plan plan = plan_for(of);
    Begun run(*this, of, plan, 1, DirectIo::automatic);
    const std::vector<std::uint64_t> expected = states_without_it(of);
    EXPECT_EQ(expected[kSkipped], expected[kSkipped - 1]);
    for (std::int64_t step = 1; step <= kSteps; ++step) {
      take(run.small, step);
      if (step != kSkipped) continue;
      // What goes on from here reads state that was checked by its hashes.
      EXPECT_EQ(digest(run.small.state()), expected[kSkipped]);
      run.small.executor().hold_state(step);
      digest_of_record(run.store, run.durability.identity, step);
    }
    EXPECT_EQ(digest(run.small.state()), expected[kSteps]);
    run.small.executor().hold_state(kSteps);
    digest_of_record(run.store, run.durability.identity, kSteps);
  }
  EXPECT_GT(tried, 7);
}

// Where nothing waits for a later run, the next step begins with the state that was kept.
TEST_F(SkippedSteps, leave_what_the_next_step_begins_with) {
  for (const UpdateTime update : {UpdateTime::after, UpdateTime::in_next_forward}) {
    const DurableCase of{.name = "in core", .update = update};
    Choices choices = uniform_choices(model_, 1, of.form, kMicroBatches, of.clip, Tier::device);
    choices.update = update;
    SmallTraining small(model_, plan_of(model_, choices), directory_);
    small.load_weights();
    for (std::int64_t step = 1; step <= kSteps; ++step) take(small, step);
    EXPECT_EQ(digest(small.state()), states_without_it(of)[kSteps]) << name_of(update);
  }
}

TEST_F(SkippedSteps, a_loss_scale_changes_no_bit) {
  for (const bool clip : {true, false}) {
    std::vector<Result> results;
    for (const double scale : {1.0, 1024.0, 0.125}) {
      SmallTraining small(
          model_, plan_of(model_, uniform_choices(model_, 0, StateForm::exact, kMicroBatches, clip, Tier::device)), directory_);
      small.load_weights();
      small.set_clip(1);
      Result& result = results.emplace_back();
      for (std::int64_t step = 1; step <= kSteps; ++step) {
        StepSettings settings = small.settings(step);
        settings.loss_scale = scale;
        small.executor().submit(settings, small.data().of_step(step - 1));
        const StepOutcome outcome = small.executor().wait();
        result.losses.push_back(outcome.loss), result.norms.push_back(outcome.grad_norm);
      }
      result.state = small.state();
    }
    EXPECT_TRUE(results[1] == results[0]);
    EXPECT_TRUE(results[2] == results[0]);
  }
}

}  // namespace
}  // namespace spillway
