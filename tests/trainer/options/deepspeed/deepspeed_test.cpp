// DeepSpeed's JSON: what it says in our flags, what is noted, what is refused, and the rates of its schedulers.
#include "trainer/options/deepspeed/deepspeed_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "files/posix_file.h"
#include "memory/base/error.h"
#include "tests/trainer/options/parsed_options.h"
#include "tests/trainer/temporary_directory.h"
#include "trainer/options/lr_schedule.h"

namespace spillway {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

json data_of(const std::string& name) {
  return json::parse(read_text_file(std::string(SPILLWAY_TEST_DATA) + "/deepspeed/" + name, 1 << 20));
}

// What the command makes of this JSON and these flags.
ResolvedOptions resolved_of(const std::string& text, const std::vector<std::string>& flags = {}) {
  const TemporaryDirectory directory;
  const std::string file = directory.file("ds.json", text);
  std::vector<const char*> words = {"--deepspeed-config", file.c_str()};
  for (const std::string& flag : flags) words.push_back(flag.c_str());
  return parse(words).resolved;
}

RunOptions options_by(const std::string& text, const std::vector<std::string>& flags = {}) {
  return resolved_of(text, flags).options;
}

// The message of a refusal; empty if there is none.
std::string refusal_of(const std::string& text, const std::vector<std::string>& flags = {}) {
  try {
    (void)resolved_of(text, flags);
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
    return error.what();
  }
  return {};
}

std::vector<std::string> texts_in(const json& object, const char* key) {
  return object.value(key, json::array()).get<std::vector<std::string>>();
}

TEST(DeepSpeed, PublishedExamplesAreReadOrRefused) {
  for (const json& example : data_of("examples.json")) {
    SCOPED_TRACE(example["from"]);
    const std::string text = example["config"].dump();
    const std::vector<std::string> flags = texts_in(example, "arguments");
    if (example.contains("refused")) {
      for (const std::string& part : texts_in(example, "refused")) EXPECT_THAT(refusal_of(text, flags), HasSubstr(part));
      continue;
    }
    const ResolvedOptions resolved = resolved_of(text, flags);
    const json options = to_json(resolved.options);
    for (const auto& [flag, value] : example["makes"].items()) EXPECT_EQ(options.value(flag, json()), value) << flag;
    for (const std::string& part : texts_in(example, "notes"))
      EXPECT_TRUE(std::ranges::any_of(resolved.notes, [&](const auto& note) { return note.find(part) != note.npos; })) << part;
  }
}

TEST(DeepSpeed, RatesAreThoseOfItsEngineStepByStep) {
  int cases = 0;
  const json golden = data_of("lr.json");
  for (const json& one : golden["cases"]) {
    SCOPED_TRACE(one["scheduler"].dump());
    const json config = {{"scheduler", one["scheduler"]},
                         {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", one["optimizer_lr"]}}}}}};
    const RunOptions options = options_by(config.dump());
    const LrSchedule schedule(options.schedule, options.batch.train_iters);
    std::int64_t step = 0;
    for (const json& rate : one["lrs"]) {
      EXPECT_NEAR(schedule.lr(step), rate.get<double>(), 1e-12 * 1e-3) << "step " << step;
      ++step;
    }
    // run.json has the same rates.
    const RunOptions again = options_from_json_text(to_json_text(options), "run.json");
    EXPECT_EQ(LrSchedule(again.schedule, again.batch.train_iters).lr(7), schedule.lr(7));
    ++cases;
  }
  EXPECT_EQ(cases, 8);
}

TEST(DeepSpeed, TwoSizesGiveTheThird) {
  const auto sizes = [](const std::string& text, std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--device", "cpu"});
    const RunOptions options = options_by(text, flags);
    return std::vector{options.batch.micro_batch_size, options.micro_batches(), options.batch.global_batch_size};
  };
  using Sizes = std::vector<std::int64_t>;
  const std::vector<std::string> two = {"--ranks", "2"};
  EXPECT_EQ(sizes(R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4})", two), (Sizes{4, 4, 32}));
  EXPECT_EQ(sizes(R"({"train_batch_size": 32, "gradient_accumulation_steps": 2})", two), (Sizes{8, 2, 32}));
  EXPECT_EQ(sizes(R"({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3})", two), (Sizes{4, 3, 24}));
  EXPECT_EQ(sizes(R"({"train_batch_size": 32})", two), (Sizes{16, 1, 32}));
  EXPECT_EQ(sizes(R"({"train_micro_batch_size_per_gpu": 4})", two), (Sizes{4, 1, 8}));
  EXPECT_EQ(sizes(R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": "auto"})", {"--micro-batch-size", "2"}),
            (Sizes{2, 16, 32}));
  EXPECT_EQ(sizes(R"({"gradient_accumulation_steps": 8})", {"--micro-batch-size", "2"}), (Sizes{2, 8, 16}));
  EXPECT_THAT(
      refusal_of(R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4,
                               "gradient_accumulation_steps": 2})"),
      HasSubstr("train_batch_size: found 32, allowed: 8 of micro-batches of 4 x 2 of gradient_accumulation_steps x 1 rank"));
  EXPECT_THAT(refusal_of(R"({"train_batch_size": 7})", two), HasSubstr("train_batch_size: found 7, allowed: a multiple of 2"));
  for (const char* size : {"0", "1073741825", "9e15"})
    EXPECT_THAT(refusal_of(std::string(R"({"train_batch_size": )") + size + "}"), HasSubstr("a whole number from 1 to 2^30"));
  EXPECT_THAT(refusal_of(R"({"train_micro_batch_size_per_gpu": 1073741824, "gradient_accumulation_steps": 1073741824})"),
              HasSubstr("at most 2^30 sequences"));
}

TEST(DeepSpeed, EveryErrorIsInOneMessage) {
  const std::string message = refusal_of(
      R"({"train_batch_size": "eight", "gradient_clipping": 0.5,
          "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "lr": 2e-4}},
          "zero_optimization": {"stage": 4, "reduce_bucket_sise": 5, "stage3_max_live_parameters": 1, "max_live_parameters": 2,
                                "offload_param": {"device": "disk"}, "offload_optimizer": {"device": "nvme"}},
          "fp16": {"enabled": "true"}, "bf16": {"enabled": true, "dynamic": 1}})",
      {"--clip-grad", "2", "--lr", "0.5"});
  for (const char* part :
       {"ds.json: found 11 errors: ", "train_batch_size: found \"eight\"", "\"optimizer.params.lr\": found twice",
        "gradient_clipping: makes --clip-grad 0.5, but 2", "optimizer.params.lr: makes --lr 0.0002, but 0.5",
        "zero_optimization.stage: found 4, allowed: 0 to 3",
        "\"zero_optimization.reduce_bucket_sise\": found a key that DeepSpeed does not know there (did you mean "
        "reduce_bucket_size?)",
        "zero_optimization.stage3_max_live_parameters: found together with zero_optimization.max_live_parameters",
        "offload_param.device: found \"disk\", allowed: none, cpu, nvme",
        "offload_optimizer.nvme_path: found none with device nvme", "fp16.enabled: found true together with bf16.enabled",
        "\"bf16.dynamic\": found a key"})
    EXPECT_THAT(message, HasSubstr(part));
}

TEST(DeepSpeed, FlagsFillWhatIsAutoAndWinOverDefaults) {
  const std::string text =
      R"({"optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": [0.9, 0.95]}}, "bf16": {"enabled": "auto"}})";
  const ResolvedOptions resolved = resolved_of(text, {"--lr", "0.25", "--dtype", "fp32", "--adam-eps", "1e-5"});
  EXPECT_EQ(resolved.options.schedule.lr, 0.25);
  EXPECT_EQ(resolved.options.precision.dtype, DType::float32);
  EXPECT_EQ(resolved.options.optimizer.adam_eps, 1e-5);
  EXPECT_EQ(resolved.options.optimizer.adam_beta2, 0.95);
  EXPECT_EQ(resolved.options.optimizer.weight_decay, 0);  // DeepSpeed's own default, not ours
  EXPECT_EQ(resolved.sources.at("lr"), OptionSource::flag);
  EXPECT_EQ(resolved.sources.at("adam-beta2"), OptionSource::deepspeed_file);
  EXPECT_EQ(resolved.sources.at("weight-decay"), OptionSource::deepspeed_default);
  const std::string table = print_config(resolved);
  EXPECT_THAT(table, AllOf(HasSubstr("DeepSpeed's file"), HasSubstr("DeepSpeed's default")));
  EXPECT_EQ(refusal_of(text, {"--adam-beta2", "0.95"}), "");  // the same value is no contradiction
  EXPECT_THAT(refusal_of(text, {"--adam-beta2", "0.9"}), HasSubstr("optimizer.params.betas: makes --adam-beta2 0.95, but 0.9"));
}

TEST(DeepSpeed, PrecisionFollowsTheBlocks) {
  const auto dtype = [](const char* text) { return options_by(text).precision.dtype; };
  EXPECT_EQ(dtype(R"({})"), DType::bfloat16);
  EXPECT_EQ(dtype(R"({"bf16": {"enabled": "True"}})"), DType::bfloat16);
  EXPECT_EQ(dtype(R"({"bf16": {"enabled": false}})"), DType::float32);
  EXPECT_EQ(dtype(R"({"fp16": {"enabled": false}})"), DType::float32);
  EXPECT_EQ(dtype(R"({"fp16": {"enabled": false}, "bf16": {"enabled": "auto"}})"), DType::bfloat16);
  EXPECT_THAT(refusal_of(R"({"bf16": {"enabled": false}})", {"--dtype", "bf16"}), HasSubstr("bf16.enabled: makes --dtype fp32"));
  EXPECT_EQ(refusal_of(R"({"fp16": {"enabled": false}})", {"--dtype", "bf16"}), "");
}

TEST(DeepSpeed, Fp16ScalesLosses) {
  const auto scale = [](const char* text, const std::vector<std::string>& flags = {}) {
    const RunOptions options = options_by(text, flags);
    EXPECT_EQ(options.precision.dtype, DType::float16);
    return options.precision.loss_scale;
  };
  EXPECT_EQ(scale(R"({"fp16": {"enabled": true}})"), LossScaleOptions());
  EXPECT_EQ(scale(R"({"fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": "auto"}})"), LossScaleOptions());
  const LossScaleOptions all{.initial = 0x1p20, .least = 0.5, .window = 100, .hysteresis = 3, .consecutive_hysteresis = true};
  const char* const text = R"({"fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 20, "loss_scale_window": 1e2,
      "hysteresis": 3, "consecutive_hysteresis": "true", "min_loss_scale": 0.5}})";
  EXPECT_EQ(scale(text), all);
  // A fixed scale leaves the rest without effect, as there.
  EXPECT_EQ(scale(R"({"fp16": {"enabled": true, "loss_scale": 128, "initial_scale_power": 16, "hysteresis": 2}})"),
            LossScaleOptions{.fixed = 128});
  // "auto" takes the type of --dtype, and then the scale; a block that is off says nothing.
  const char* const automatic = R"({"fp16": {"enabled": "auto", "hysteresis": 4}})";
  EXPECT_EQ(scale(automatic, {"--dtype", "fp16"}), LossScaleOptions{.hysteresis = 4});
  EXPECT_EQ(options_by(automatic).precision.loss_scale, LossScaleOptions());
  EXPECT_EQ(options_by(R"({"fp16": {"enabled": false, "loss_scale": 128}})").precision.loss_scale, LossScaleOptions());
  for (const auto& [bad, part] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"fp16": {"enabled": true, "loss_scale": 1000}})", "fp16.loss_scale: found \"1000\", allowed: a power of two"},
           {R"({"fp16": {"enabled": true, "loss_scale": -1}})", "fp16.loss_scale: found \"-1\""},
           {R"({"fp16": {"enabled": true, "initial_scale_power": 65}})", "fp16.initial_scale_power: found 65, allowed: 0 to 64"},
           {R"({"fp16": {"enabled": true, "initial_scale_power": -1}})", "fp16.initial_scale_power: found -1"},
           {R"({"fp16": {"enabled": true, "hysteresis": 0}})", "fp16.hysteresis: found \"0\""},
           {R"({"fp16": {"enabled": true, "loss_scale_window": 1.5}})", "fp16.loss_scale_window: found 1.5"},
           {R"({"fp16": {"enabled": true, "min_loss_scale": 3}})", "fp16.min_loss_scale: found \"3\", allowed: a power of two"},
           {R"({"fp16": {"enabled": true, "dynamic_loss_scale": true}})", "\"fp16.dynamic_loss_scale\": found a key"}})
    EXPECT_THAT(refusal_of(bad), HasSubstr(part)) << bad;
  EXPECT_THAT(refusal_of(text, {"--hysteresis", "5"}), HasSubstr("fp16.hysteresis: makes --hysteresis 3, but 5 was given"));
  EXPECT_THAT(refusal_of(R"({"fp16": {"enabled": true}})", {"--dtype", "bf16"}), HasSubstr("fp16.enabled: makes --dtype fp16"));
}

TEST(DeepSpeed, WhatHasNoMeaningIsNotedOnceWithTheReason) {
  const std::vector<std::string> notes =
      resolved_of(R"({"zero_optimization": {"overlap_comm": true, "sub_group_size": 1e9}, "aio": {"queue_depth": 8, "depth": 1},
                      "prescale_gradients": false, "my_key": [1, 2], "wall_clock_breakdown": true})")
          .notes;
  ASSERT_EQ(notes.size(), 4);
  const auto has = [&](const std::string& keys, const std::string& reason) {
    return std::ranges::any_of(notes, [&](const std::string& note) {
      return note.find("ds.json: " + keys + ": ") != note.npos && note.find(reason) != note.npos;
    });
  };
  EXPECT_TRUE(has("zero_optimization.overlap_comm, zero_optimization.sub_group_size", "the plan sizes buffers"));
  EXPECT_TRUE(has("\"aio.depth\", \"my_key\"", "DeepSpeed knows no such key"));
  EXPECT_TRUE(has("aio.queue_depth", "drives"));
  EXPECT_TRUE(has("wall_clock_breakdown", "log.jsonl"));
}

TEST(DeepSpeed, HostileFiles) {
  const std::vector<std::pair<std::string, const char*>> bad = {
      {"", "empty"},
      {"[1]", "one JSON object"},
      {R"({"train_batch_size": 8)", "not valid JSON at line 1"},
      {R"({"a": 1e999})", "number"},
      {std::string(100'000, '[') + std::string(100'000, ']'), "nested more than 64 deep"},
      {R"({"zero_optimization": )" + std::string(100'000, '['), "nested more than 64 deep"},
      {R"({"optimizer": []})", "optimizer: found [], allowed: an object"},
      {R"({"optimizer": {"params": {"lr": 1}}})", "optimizer.type: found none, allowed: Adam, AdamW"},
      {R"({"optimizer": {"type": "Adam", "params": {"lr": -1}}})", "optimizer.params.lr: found \"-1\""},
      {R"({"optimizer": {"type": "Adam", "params": {"betas": [0.9]}}})", "optimizer.params.betas: found [0.9]"},
      {R"({"optimizer": {"type": "Adam", "params": {"betas": [0.9, 1.5]}}})", "optimizer.params.betas: found \"1.5\""},
      {R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false}}})", "optimizer.params.adam_w_mode: found false"},
      {R"({"zero_optimization": {"stage": 1.5}})", "zero_optimization.stage: found 1.5, allowed: a whole number"},
      {R"({"zero_optimization": {"stage": -1}})", "zero_optimization.stage: found -1"},
      {R"({"zero_optimization": {"cpu_offload": true, "offload_optimizer": {"device": "cpu"}}})", "which took its place"},
      {R"({"scheduler": {"type": "WarmupDecayLR", "params": {}}})", "scheduler.params.total_num_steps: found none"},
      {R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "cubic"}}})",
       "warmup_type: found \"cubic\", allowed: log"},
      {R"({"scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 9, "cos_min_ratio": 2}}})",
       "cos_min_ratio: found 2"},
      {R"({"scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 9, "warmup_num_steps": 9}}})",
       "--lr-decay-iters"},
      {R"({"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 9, "warmup_num_steps": 10}}})",
       "--lr-warmup-iters"},
      {R"({"tensorboard": {"enabled": "yes"}})", "tensorboard.enabled: found \"yes\", allowed: true or false"},
      {R"({"gradient_clipping": "inf"})", "gradient_clipping: found \"inf\""},
  };
  for (const auto& [text, part] : bad) EXPECT_THAT(refusal_of(text), HasSubstr(part)) << text.substr(0, 100);
  EXPECT_REFUSED(options_of({"--deepspeed-config", "/nonexistent/ds.json"}), InputError,
                 "--deepspeed-config: found no file /nonexistent/ds.json");
  EXPECT_THAT(refusal_of(R"({"scheduler": {"type": "WarmupLR"}})", {"--lr-warmup-fraction", "0.1"}), "");
  EXPECT_THAT(
      refusal_of(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 3}}})", {"--lr-warmup-fraction", "0.1"}),
      HasSubstr("warmup_num_steps: found together with --lr-warmup-fraction"));
}

}  // namespace
}  // namespace spillway
