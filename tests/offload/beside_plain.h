// Compares a plan with state on NVMe with a plan that has everything on the device: no plan may change results between steps.
#pragma once

#include <algorithm>
#include <string>

#include "tests/offload/small_training.h"

namespace spillway {

// Evaluating between steps has the same loss under both, and changes neither's steps nor state.
inline void expect_evaluation_changes_nothing(const SmallModel& model, const Choices& choices, const Choices& plain_choices,
                                              const std::string& directory) {
  SmallTraining training(model, plan_of(model, choices, true), directory);
  SmallTraining plain(model, plan_of(model, plain_choices, true), directory);
  for (SmallTraining* each : {&training, &plain}) each->load_weights();
  for (std::int64_t step = 1; step <= 5; ++step) {
    for (SmallTraining* each : {&training, &plain}) each->submit(step);
    const StepOutcome ours = training.executor().wait(), theirs = plain.executor().wait();
    EXPECT_EQ(ours.loss, theirs.loss);
    EXPECT_EQ(ours.grad_norm, theirs.grad_norm);
    if (step % 2 == 0) continue;
    EXPECT_EQ(training.executor().evaluate(training.data().of_step(9)), plain.executor().evaluate(plain.data().of_step(9)));
  }
  EXPECT_TRUE(training.state() == plain.state());
}

// A step of the steady run moves the bytes that its plan's operations say, and peaks as planned on every tier.
inline void expect_bytes_and_peaks_of_plan(SmallTraining& training) {
  training.load_weights();
  training.train(3);
  By<Lane, Bytes> moved;
  for (const Op& op : training.plan().step.ops) {
    if (op.kind == OpKind::move) moved[op.lane] += op.bytes;
  }
  EXPECT_GT(std::min(moved[Lane::nvme_read], moved[Lane::nvme_write]), kMiB);
  EXPECT_EQ(training.last().moved, moved);
  EXPECT_EQ(training.last().peak, training.plan().peak);
}

// The second step's loss is divided by zero and is not finite: the state is that after the first step, with its updates applied
// that waited for the second's forward.
inline void expect_infinite_loss_leaves_step_before(const SmallModel& model, const Choices& choices, const Choices& plain_choices,
                                                    const std::string& directory) {
  SmallTraining training(model, plan_of(model, choices), directory);
  SmallTraining plain(model, plan_of(model, plain_choices), directory);
  for (SmallTraining* each : {&training, &plain}) each->load_weights();
  training.submit(1);
  EXPECT_EQ(training.executor().wait().stopped, "");
  plain.train(1);
  StepSettings settings = training.settings(2);
  settings.counted_tokens = 0;
  training.executor().submit(settings, training.data().of_step(1));
  const StepOutcome outcome = training.executor().wait();
  EXPECT_NE(outcome.stopped, "");
  EXPECT_TRUE(outcome.state_intact);
  EXPECT_TRUE(training.state() == plain.state());
}

}  // namespace spillway
