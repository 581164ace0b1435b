// The bounds of real models' plans, their descriptions, and the changes that would lift them.
#include "trainer/plan/plan_lifts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/trainer/temporary_directory.h"
#include "trainer/machine/profile_file.h"
#include "trainer/plan/bound_words.h"
#include "trainer/plan/plan_file.h"
#include "trainer/plan/prepared_run.h"
#include "trainer/show/plan_page.h"
#include "trainer/show/plan_report.h"

namespace spillway {
namespace {

using testing::HasSubstr;

// Two cores of a server with a drive, as measured.
constexpr std::string_view kMachine = R"({"name": "two cores and a drive", "threads": 2, "gemm_bf16_flops": 860e9,
    "gemm_fp32_flops": 374e9, "attention_bf16_flops": 556e9, "attention_fp32_flops": 276e9, "memory_bytes": 66.9e9,
    "update_bytes": 59.1e9, "nvme_read_bytes": 3.9e9, "nvme_write_bytes": 7.7e9, "nvme_mixed_read_bytes": 2.4e9,
    "nvme_mixed_write_bytes": 2.4e9, "nvme_read_requests": 45500, "nvme_write_requests": 37800, "operation_s": 38e-6,
    "gemm_bf16_extra_rows": 41, "layers_bf16": 0.94, "layers_fp32": 0.82, "compute_beside_read": 0.95,
    "compute_beside_write": 0.89, "update_beside_read": 0.91, "update_beside_write": 0.71, "read_beside_compute": 0.85,
    "write_beside_compute": 0.9, "shared_compute": 0.38, "shared_update": 0.66})";

class PlanLifts : public testing::Test {
 protected:
  PlanLifts() {
    options_.model.model = "llama-3.2-1b";
    options_.batch = {.micro_batch_size = 1, .global_batch_size = 2, .seq_length = 512};
    options_.memory.budget[Tier::device] = kGiB;
    options_.memory.nvme = {{"/not/there", 100 * kGiB}};
    options_.memory.profile = directory_.file("machine.json", std::string(kMachine));
  }

  PlannedRun planned(const PreparedModel& model) {
    PlannedRun run = plan_run(options_, model, Where::anywhere);
    run.lifts = lifts_of(run, model, options_);
    return run;
  }
  static std::string words_of(std::string text) {
    std::string words;  // ignores the table's line breaks
    for (const char c : text) {
      if (const char word = c == '\n' ? ' ' : c; word != ' ' || !words.ends_with(' ')) words += word;
    }
    return words;
  }

  TemporaryDirectory directory_;
  RunOptions options_;
};

// The updates of all 1.2 B parameters wait for the norm, and can hide only in the forward.
TEST_F(PlanLifts, UpdatesThatWaitForTheNormBindTheStep) {
  const PreparedModel model(options_, Where::anywhere);
  PlannedRun run = planned(model);
  ASSERT_TRUE(run.outcome.plan);
  const Prediction& prediction = run.outcome.prediction;
  const Choices& choices = run.outcome.plan->choices;
  const Bound bound = prediction.bound.of_step();
  const double compute_s = prediction.busy_s[Lane::compute];
  EXPECT_GT(prediction.step_s, 1.4 * compute_s);
  EXPECT_LT(LaneBounds(run.machine).of(prediction.busy_s).seconds, 0.8 * prediction.step_s) << "what lanes say of it";
  EXPECT_LE(bound.seconds, prediction.step_s);
  EXPECT_GT(1.15 * bound.seconds, prediction.step_s);
  EXPECT_TRUE(bound.by_norm);
  EXPECT_EQ(bound.lane(), Lane::nvme_read);
  EXPECT_EQ(bound.rest.lane, Lane::compute);
  EXPECT_NEAR(bound.seconds, bound.within.seconds + bound.rest.seconds, 1e-9);
  EXPECT_LT(bound.compute_within_s, bound.within.seconds);
  EXPECT_EQ(bound_name(bound), "norm");
  const std::string words = bound_words(bound, choices);
  EXPECT_THAT(words, HasSubstr("clipping has them wait for the norm"));
  EXPECT_THAT(words, HasSubstr("nvme_read"));

  ASSERT_FALSE(run.lifts.empty());
  for (std::size_t i = 0; i < run.lifts.size(); ++i) {
    const Lift& lift = run.lifts[i];
    EXPECT_LE(1.03 * lift.step_s, prediction.step_s);
    EXPECT_LE(lift.bound_s, lift.step_s);
    EXPECT_GE(lift.step_s, i == 0 ? 0 : run.lifts[i - 1].step_s);
  }
  const auto offers = [&](const std::vector<std::string>& flags) {
    return std::ranges::count(run.lifts, flags, &Lift::flags) == 1;
  };
  EXPECT_TRUE(offers({"--clip-grad 0"}));
  EXPECT_TRUE(offers({"--clip-grad 0", "--durability checkpoint"}));
  EXPECT_TRUE(offers({"--nvme DIR"}));

  const auto json = nlohmann::json::parse(plan_json(run, model, options_));
  EXPECT_EQ(json["predicted"]["bound"]["name"], "norm");
  EXPECT_EQ(json["predicted"]["bound"]["why"], words);
  EXPECT_EQ(json["predicted"]["bound_s"], bound.seconds);
  EXPECT_EQ(json["predicted"]["binding_lane"], "nvme_read");
  ASSERT_EQ(json["lifts"].size(), run.lifts.size());
  EXPECT_EQ(json["lifts"][0]["flags"], run.lifts[0].flags);
  EXPECT_EQ(json["lifts"][0]["step_s"], run.lifts[0].step_s);
  EXPECT_EQ(json["lifts"][0]["costs"], run.lifts[0].costs);
  for (const std::string& shown : {plan_table(run, model, options_), plan_page(run, model, options_)}) {
    EXPECT_THAT(words_of(shown), HasSubstr("clipping has them wait for the norm"));
    EXPECT_THAT(words_of(shown),
                HasSubstr("with --clip-grad 0 --durability checkpoint (no clipping, which changes the training"));
  }
}

// More memory is offered if the plan has a use for it.
TEST_F(PlanLifts, TwiceTheMemoryWhereThereIsLittle) {
  options_.memory.budget[Tier::device] = 640 * kMiB;
  const PreparedModel model(options_, Where::anywhere);
  const PlannedRun run = planned(model);
  ASSERT_TRUE(run.outcome.plan);
  const std::vector<std::string> flags = {"--device-memory 1280MiB"};
  const auto lift = std::ranges::find(run.lifts, flags, &Lift::flags);
  ASSERT_NE(lift, run.lifts.end());
  EXPECT_LE(1.03 * lift->step_s, run.outcome.prediction.step_s);
}

// With the offered flags, a run is planned to be no slower than the offer says.
TEST_F(PlanLifts, WhatIsOfferedIsPlanned) {
  std::vector<Lift> lifts;
  {
    const PreparedModel model(options_, Where::anywhere);
    lifts = planned(model).lifts;
  }
  for (const Lift& lift : lifts) {
    RunOptions changed = options_;
    for (const std::string& flag : lift.flags) {
      if (flag == "--clip-grad 0") changed.optimizer.clip_grad = 0;
      if (flag == "--durability checkpoint") changed.memory.durability = Durability::checkpoint;
      if (flag == "--device-memory 2GiB") changed.memory.budget[Tier::device] = 2 * kGiB;
      if (flag == "--nvme DIR") {
        auto twice = nlohmann::json::parse(kMachine);
        for (auto& [key, rate] : twice.items()) {
          if (key.starts_with("nvme_")) rate = 2 * rate.get<double>();
        }
        changed.memory.profile = directory_.file("twice.json", twice.dump());
        changed.memory.nvme[0].size = 200 * kGiB;
      }
    }
    const PreparedModel model(changed, Where::anywhere);
    const PlannedRun run = plan_run(changed, model, Where::anywhere);
    ASSERT_TRUE(run.outcome.plan);
    EXPECT_LE(run.outcome.prediction.step_s, 1.001 * lift.step_s) << lift.flags[0];
  }
}

TEST_F(PlanLifts, NothingIsOfferedWhereComputeTakesTheStep) {
  options_.model.model = "gpt2";
  options_.batch.global_batch_size = 64;
  options_.memory.budget[Tier::device] = 16 * kGiB;
  const PreparedModel model(options_, Where::anywhere);
  const PlannedRun run = planned(model);
  ASSERT_TRUE(run.outcome.plan);
  EXPECT_TRUE(run.lifts.empty());
  EXPECT_EQ(nlohmann::json::parse(plan_json(run, model, options_))["lifts"].size(), 0U);
}

TEST_F(PlanLifts, NoPlanOfARealModelIsFasterThanItsBound) {
  options_.model.model = "smollm2-135m";
  const PreparedModel model(options_, Where::anywhere);
  int by_norm = 0, turn = 0;
  for (const UpdateTime update : {UpdateTime::after, UpdateTime::in_backward, UpdateTime::in_next_forward}) {
    for (const OrderChoice order : {OrderChoice::vertical, OrderChoice::horizontal}) {
      const bool durable = ++turn % 2 == 0;
      options_.memory.budget[Tier::device] = durable ? 192 * kMiB : 320 * kMiB;
      options_.memory.durability = durable ? Durability::step : Durability::checkpoint;
      options_.memory.update = update, options_.memory.order = order;
      // Updates that clipping may take back need two slots.
      options_.optimizer.clip_grad = update == UpdateTime::in_backward && !durable ? 0 : 1;
      const PlannedRun run = plan_run(options_, model, Where::anywhere);
      ASSERT_TRUE(run.outcome.plan);
      const Bound bound = run.outcome.prediction.bound.of_step();
      EXPECT_LE(bound.seconds, run.outcome.prediction.step_s * (1 + 1e-6)) << turn;
      EXPECT_GT(bound.seconds, 0.6 * run.outcome.prediction.step_s) << turn;
      by_norm += bound.by_norm ? 1 : 0;
    }
  }
  EXPECT_GE(by_norm, 3);
}

}  // namespace
}  // namespace spillway
