#include "trainer/options/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>

#include "memory/base/error.h"
#include "tests/trainer/damaged_text.h"
#include "tests/trainer/options/parsed_options.h"
#include "tests/trainer/temporary_directory.h"
#include "trainer/options/flag_table.h"
#include "trainer/options/resolve_options.h"
#include "trainer/options/validate_options.h"

namespace spillway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Returns true if a line of the table begins with these words. (No regular expressions here: Oniguruma's regcomp replaces
// libc's.)
bool has_line(const std::string& table, const std::vector<std::string>& words) {
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string field;
    if (std::all_of(words.begin(), words.end(), [&](const std::string& word) { return fields >> field && field == word; }))
      return true;
  }
  return false;
}

TEST(Options, DefaultsAreValid) {
  const RunOptions options = options_of({});
  EXPECT_EQ(options.batch.global_batch_size, 1);
  EXPECT_EQ(options.micro_batches(), 1);
  EXPECT_EQ(options.optimizer.adam_beta2, 0.999);
  EXPECT_EQ(options.precision.dtype, DType::bfloat16);
  EXPECT_EQ(options.memory.durability, Durability::automatic);
  EXPECT_REFUSED(require_model(options), InputError, "--model");
  EXPECT_REFUSED(require_data(options), InputError, "--data");
}

// A flag as typed, and its effect on the options.
struct TypedFlag {
  std::vector<const char*> words;
  bool (*is_understood)(const RunOptions&);
};

#define MAKES(condition) [](const RunOptions& o) { return condition; }
const TypedFlag kEveryFlag[] = {
    {{"--model", "gpt2"}, MAKES(o.model.model == "gpt2")},
    {{"--init", "random"}, MAKES(o.model.init == WeightInit::random)},
    {{"--threads", "3"}, MAKES(o.parallel.threads == 3 && threads_of(o) == 3)},
    {{"--data", "a.txt", "b.jsonl"}, MAKES(o.data.data == (std::vector<std::string>{"a.txt", "b.jsonl"}))},
    {{"--eval-data=c.bin"}, MAKES(o.data.eval_data == std::vector<std::string>{"c.bin"})},
    {{"--tokenizer", "bytes"}, MAKES(o.data.tokenizer == "bytes")},
    {{"--data-format", "u16"}, MAKES(o.data.format == DataFormat::u16)},
    {{"--data-order", "sequential"}, MAKES(o.data.order == DataOrder::sequential)},
    {{"--truncate"}, MAKES(o.data.truncate)},
    {{"--packing"}, MAKES(o.data.packing)},
    {{"--skip-bad-lines"}, MAKES(o.data.skip_bad_lines)},
    {{"--drop-last"}, MAKES(o.data.drop_last)},
    {{"--data-columns", "messages=chat,role=from"},
     MAKES(o.data.columns.name_of("messages") == "chat" && o.data.columns.name_of("role") == "from")},
    {{"--train-on", "last"}, MAKES(o.data.train_on == TrainOn::last)},
    {{"--text-ends", "none"}, MAKES(o.data.text_ends == TextEnds::none)},
    {{"--micro-batch-size", "2"}, MAKES(o.batch.micro_batch_size == 2)},
    {{"--global-batch-size", "8"}, MAKES(o.micro_batches() == 4)},
    {{"--seq-length", "64"}, MAKES(o.batch.seq_length == 64)},
    {{"--train-iters", "50"}, MAKES(o.batch.train_iters == 50)},
    {{"--lr", "1e-3"}, MAKES(o.schedule.lr == 1e-3)},
    {{"--min-lr", "1e-4"}, MAKES(o.schedule.min_lr == 1e-4)},
    {{"--lr-warmup-iters", "5"}, MAKES(o.schedule.lr_warmup_iters == 5)},
    {{"--lr-decay-iters", "40"}, MAKES(o.schedule.lr_decay_iters == 40)},
    {{"--lr-decay-style", "wsd"}, MAKES(o.schedule.lr_decay_style == DecayStyle::wsd)},
    {{"--lr-wsd-decay-iters", "7"}, MAKES(o.schedule.lr_wsd_decay_iters == 7)},
    {{"--lr-warmup-init", "1e-5"}, MAKES(o.schedule.lr_warmup_init == 1e-5)},
    {{"--lr-rule", "spillway"}, MAKES(o.schedule.lr_rule == LrRule::spillway)},
    {{"--lr-warmup-style", "linear"}, MAKES(o.schedule.lr_warmup_style == WarmupStyle::linear)},
    {{"--optimizer", "adamw"}, MAKES(o.optimizer.optimizer == OptimizerChoice::adamw)},
    {{"--weight-decay", "0.1"}, MAKES(o.optimizer.weight_decay == 0.1)},
    {{"--adam-beta1", "0.8"}, MAKES(o.optimizer.adam_beta1 == 0.8)},
    {{"--adam-beta2", "0.95"}, MAKES(o.optimizer.adam_beta2 == 0.95)},
    {{"--adam-eps", "1e-6"}, MAKES(o.optimizer.adam_eps == 1e-6)},
    {{"--clip-grad", "0"}, MAKES(o.optimizer.clip_grad == 0)},
    {{"--expected-clip-rate", "0.25"}, MAKES(o.optimizer.expected_clip_rate == 0.25)},
    {{"--dtype", "bf16"}, MAKES(o.precision.dtype == DType::bfloat16)},
    {{"--state", "compact"}, MAKES(o.precision.state == StateForm::compact)},
    {{"--router-aux-loss-coef", "0.02"}, MAKES(o.model.balance_coefficient == 0.02)},
    {{"--router-z-loss-coef", "0"}, MAKES(o.model.router_z_coefficient == 0)},
    {{"--lora-rank", "8"}, MAKES(o.adapter.rank == 8)},
    {{"--lora-alpha", "16"}, MAKES(o.adapter.alpha == 16)},
    {{"--lora-dropout", "0.25"}, MAKES(o.adapter.dropout == 0.25)},
    {{"--lora-targets", "q_proj"}, MAKES(o.adapter.targets == std::vector<std::string>{"q_proj"})},
    {{"--adapter", "a"}, MAKES(o.adapter.directory == "a")},
    {{"--template-date", "2024-05-06"}, MAKES(o.data.template_date == "2024-05-06")},
    {{"--seed", "18446744073709551615"}, MAKES(o.model.seed == std::numeric_limits<std::uint64_t>::max())},
    {{"--save", "run"}, MAKES(o.checkpoint.save == "run")},
    {{"--save-interval", "10"}, MAKES(o.checkpoint.save_interval == 10)},
    {{"--keep-last", "3"}, MAKES(o.checkpoint.keep_last == 3)},
    {{"--keep-best"}, MAKES(o.checkpoint.keep_best)},
    {{"--eval-interval", "20"}, MAKES(o.log.eval_interval == 20)},
    {{"--early-stopping-patience", "4"}, MAKES(o.stopping.patience == 4)},
    {{"--early-stopping-threshold", "0.125"}, MAKES(o.stopping.threshold == 0.125)},
    {{"--log-interval", "5"}, MAKES(o.log.log_interval == 5)},
    {{"--device", "cpu"}, MAKES(o.memory.device == DeviceChoice::cpu)},
    {{"--device-memory", "1GiB"}, MAKES(o.memory.budget[Tier::device] == kGiB)},
    {{"--nvme", "/a", "--nvme", "/b=2GiB"},
     MAKES(o.memory.nvme.size() == 2 && o.memory.nvme[0].path == "/a" && !o.memory.nvme[0].size &&
           o.memory.nvme[1].size == 2 * kGiB)},
    {{"--parameter-tier", "nvme"}, MAKES(o.memory.parameter_tier == Tier::nvme)},
    {{"--optimizer-tier", "device"}, MAKES(o.memory.optimizer_tier == Tier::device)},
    {{"--activation-tier", "recompute"}, MAKES(o.memory.activation_tier == SavedRequest::recompute)},
    {{"--update-on", "device"}, MAKES(o.memory.update_on == Tier::device)},
    {{"--order", "vertical"}, MAKES(o.memory.order == OrderChoice::vertical)},
    {{"--update", "in-next-forward"}, MAKES(o.memory.update == UpdateTime::in_next_forward)},
    {{"--durability", "checkpoint"}, MAKES(o.memory.durability == Durability::checkpoint)},
    {{"--durability-interval", "7"}, MAKES(o.memory.durability_interval == 7)},
    {{"--plan", "p.json"}, MAKES(o.memory.plan == "p.json")},
    {{"--profile", "m.json"}, MAKES(o.memory.profile == "m.json")},
    {{"--ranks", "1"}, MAKES(o.parallel.ranks == 1)},
    {{"--zero-stage", "0"}, MAKES(o.parallel.zero_stage == 0)},
    {{"--zero-group-size", "1"}, MAKES(o.parallel.zero_group_size == 1)},
    {{"--collectives", "auto"}, MAKES(o.parallel.collectives == CollectivesChoice::automatic)},
    {{"--reduce-algorithm", "ring"}, MAKES(o.parallel.reduce_algorithm == ReduceAlgorithm::ring)},
    {{"--rendezvous-timeout", "60"}, MAKES(o.parallel.rendezvous_timeout == 60)},
    {{"--rendezvous-port", "4000"}, MAKES(o.parallel.rendezvous_port == 4000)},
    {{"--sum-groups", "1"}, MAKES(o.parallel.sum_groups == 1)},
    {{"--format", "html"}, MAKES(o.log.format == OutputFormat::html)},
    {{"--out", "x.html"}, MAKES(o.log.out == "x.html")},
    {{"--drift-threshold", "0.5"}, MAKES(o.log.drift_threshold == 0.5)},
    {{"--nvme-tbw", "600TB"}, MAKES(o.log.nvme_tbw == 600'000'000'000'000)},
    {{"--tensorboard", "curves"}, MAKES(o.log.tensorboard == "curves")},
    {{"--csv", "steps.csv"}, MAKES(o.log.csv == "steps.csv")},
    {{"--sample-interval", "30"}, MAKES(o.log.sample_interval == 30)},
    {{"--sample-prompt", "Once upon"}, MAKES(o.log.sample_prompt == "Once upon")},
    {{"--sample-tokens", "12"}, MAKES(o.log.sample_tokens == 12)},
};
#undef MAKES

TEST(Options, EveryFlagIsUnderstood) {
  std::vector<const char*> words;
  for (const TypedFlag& flag : kEveryFlag) words.insert(words.end(), flag.words.begin(), flag.words.end());
  const RunOptions o = options_of(words);
  for (const TypedFlag& flag : kEveryFlag) EXPECT_TRUE(flag.is_understood(o)) << flag.words.front();

  // run.json gives the same options, and the same text when it is written a second time.
  const std::string text = to_json(o).dump(2);
  const RunOptions again = options_from_json_text(text, "run.json");
  EXPECT_EQ(to_json(again).dump(2), text);
  EXPECT_EQ(again.model.seed, o.model.seed);
  EXPECT_EQ(again.memory.nvme[1].size, o.memory.nvme[1].size);
  EXPECT_EQ(again.schedule.lr_wsd_decay_iters, 7);
  EXPECT_EQ(to_json(o).size(), flag_table().size() - 6 - 7)
      << "every flag was given but --load, --host-memory, which is refused, seven of fp16 (precision_test.cpp), and the "
         "alternatives --epochs, "
         "--lr-warmup-fraction, --eval-split and --sample-chat, so each must be in run.json";
}

TEST(Options, ADirectoryThatIsThereIsThatDirectory) {
  const TemporaryDirectory directory;
  const auto nvme_of = [](const std::string& typed) { return options_of({"--nvme", typed.c_str()}).memory.nvme.at(0); };
  for (const std::string name : {"lr=0.001,seed=3", "nv=1", "n=2GiB", "x=y=-1"}) {
    const std::string path = directory.path() + "/" + name;
    std::filesystem::create_directory(path);
    EXPECT_EQ(nvme_of(path).path, path);
    EXPECT_FALSE(nvme_of(path).size);
    EXPECT_EQ(nvme_of(path + "=3MiB").path, path);
    EXPECT_EQ(nvme_of(path + "=3MiB").size, 3 * kMiB);
    // In run.json it still means the directory after that is gone.
    const RunOptions options = options_of({"--nvme", path.c_str()});
    std::filesystem::remove(path);
    const RunOptions again = options_from_json_text(to_json(options).dump(), "run.json");
    EXPECT_EQ(again.memory.nvme.at(0).path, path + "/");
    EXPECT_FALSE(again.memory.nvme.at(0).size);
  }
  EXPECT_EQ(nvme_of(directory.path() + "/none=1").path, directory.path() + "/none");
}

TEST(Options, DefaultsSurviveRunJson) {
  const RunOptions options = options_of({});
  EXPECT_EQ(to_json(options_from_json_text(to_json(options).dump(), "run.json")), to_json(options));
}

TEST(Options, NumbersMustBeNumbersInRange) {
  const std::vector<std::pair<const char*, std::vector<const char*>>> bad = {
      {"--lr", {"", "x", "-1", "nan", "inf", "1e999", "1e-3x", "0x1", "--min-lr"}},
      {"--adam-beta1", {"1", "1.5", "-0.1"}},
      {"--adam-eps", {"0", "-1e-8"}},
      {"--expected-clip-rate", {"1.1", "-1"}},
      {"--weight-decay", {"-0.1"}},
      {"--micro-batch-size", {"0", "-1", "1.5", "1e3", "99999999999999999999", ""}},
      {"--train-iters", {"0", "-5", "9223372036854775807"}},
      {"--seed", {"-1", "18446744073709551616", "1.0"}},
      {"--seq-length", {"0", "x"}},
      {"--log-interval", {"0"}},
      {"--device", {"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1024", "cudax1"}},
      {"--device-memory", {"0", "1GB", "-1GiB"}},
      {"--nvme", {"=1GiB", "/a=0", "/a=1GB", "/a=-1"}},
      {"--dtype", {"fp8", "BF16"}},
      {"--zero-stage", {"4"}},
      {"--threads", {"0", "-1", "1025", "x"}},
      {"--init", {"zeros"}},
      {"--model", {""}},
      {"--state", {"fp32"}},
      {"--eval-split", {"0", "-1", "1.0", "0.0", "1e3", "1.5", "x", "", "nan", "5%"}},
      {"--data-columns", {"messages", "=chat", "messages=", "chats=chat", "messages=a,messages=b", "prompt=a,completion=a", ","}},
      {"--early-stopping-patience", {"0", "-1", "1.5"}},
      {"--early-stopping-threshold", {"-0.1", "nan"}},
  };
  for (const auto& [flag, values] : bad) {
    for (const char* value : values) {
      EXPECT_REFUSED(options_of({flag, value}), InputError, std::string(flag) + ": found");
    }
  }
}

TEST(Options, AnEqualsSignInAnNvmeDirectory) {
  EXPECT_EQ(options_of({"--nvme", "/a=b"}).memory.nvme[0].path, "/a=b");
  EXPECT_EQ(options_of({"--nvme", "/a=b=4KiB"}).memory.nvme[0].path, "/a=b");
  EXPECT_EQ(options_of({"--nvme", "/a=b=4KiB"}).memory.nvme[0].size, 4096);
  EXPECT_EQ(options_of({"--nvme", "/a=5/"}).memory.nvme[0].path, "/a=5/");
  EXPECT_REFUSED(options_of({"--nvme", "/a", "--nvme", "/a/"}), InputError, "twice");
}

// Refused words, and a part of the message.
struct Refused {
  std::vector<const char*> words;
  const char* said;
};

void expect_refused(std::span<const Refused> rows) {
  for (const Refused& row : rows) EXPECT_REFUSED(options_of(row.words), InputError, row.said);
}

TEST(Options, WhatDoesNotGoTogether) {
  const Refused rows[] = {
      {{"--micro-batch-size", "3", "--global-batch-size", "8"}, "--global-batch-size: found 8, allowed: a multiple of 3"},
      {{"--micro-batch-size", "3", "--global-batch-size", "2"}, "a multiple of 3"},
      {{"--lr", "1e-4", "--min-lr", "1e-3"}, "--min-lr"},
      {{"--train-iters", "5", "--lr-warmup-iters", "6"}, "--lr-warmup-iters"},
      {{"--optimizer-tier", "nvme"}, "--optimizer-tier: found nvme without --nvme"},
      {{"--dtype", "fp32", "--state", "compact"}, "--state"},
      {{"--save-interval", "5"}, "--save-interval"},
      {{"--ranks", "6", "--zero-group-size", "4"}, "--zero-group-size: found 4 with --ranks 6"},
      {{"--ranks", "2", "--global-batch-size", "3"}, "--global-batch-size: found 3"},
      {{"--data", "-", "--eval-data", "-"}, "--eval-data: found - with --data -"},
      {{"--data", "a.jsonl", "--eval-split", "0.1", "--eval-data", "b"}, "--eval-split: found together with --eval-data"},
      {{"--keep-best", "--save", "a"}, "--keep-best: found without evaluations"},
      {{"--keep-best", "--eval-data", "a"}, "--keep-best: found without --save"},
      {{"--early-stopping-patience", "3"}, "--early-stopping-patience: found 3 without evaluations"},
      {{"--early-stopping-threshold", "0.5", "--eval-data", "a"}, "without --early-stopping-patience"},
      {{"--train-iters", "1000000000000", "--global-batch-size", "1073741824"}, "2^62"},
  };
  expect_refused(rows);
}

TEST(Options, ASplitIsAShareOrANumberOfRows) {
  EXPECT_EQ(options_of({"--eval-split", "0.25"}).data.eval_split, (EvalSplit{.share = 0.25}));
  EXPECT_EQ(options_of({"--eval-split", "1"}).data.eval_split, (EvalSplit{.rows = 1}));
  EXPECT_EQ(EvalSplit{.share = 0.25}.of(10), 3);
  EXPECT_EQ(EvalSplit{.rows = 7}.of(10), 7);
  const TemporaryDirectory directory;
  const std::string file = directory.file("c.json", R"({"eval-split": 0.05})");
  EXPECT_EQ(options_of({"--config", file.c_str()}).data.eval_split, (EvalSplit{.share = 0.05}));
  // The flag wins over the file's other way to evaluate.
  const RunOptions options = options_of({"--config", file.c_str(), "--eval-data", "b.jsonl"});
  EXPECT_FALSE(options.data.eval_split);
  EXPECT_THAT(options.data.eval_data, ElementsAre("b.jsonl"));
}

TEST(Options, ALoadedRunKeepsItsSplit) {
  const TemporaryDirectory directory;
  (void)directory.file("run.json", R"({"data": "a.jsonl", "eval-split": 0.05, "seed": 7})");
  const char* const run = directory.path().c_str();
  EXPECT_EQ(options_of({"--load", run}).data.eval_split, (EvalSplit{.share = 0.05}));
  EXPECT_EQ(options_of({"--load", run, "--eval-split", "0.05"}).data.eval_split, (EvalSplit{.share = 0.05}));
  EXPECT_REFUSED(options_of({"--load", run, "--eval-split", "0.06"}), InputError,
                 "--eval-split: found 0.06, but the run in " + directory.path() + " holds back 0.05");
  EXPECT_REFUSED(options_of({"--load", run, "--seed", "8"}), InputError, "--seed: found 8, but --eval-split");
  EXPECT_EQ(options_of({"--load", run, "--data", "b.jsonl", "--eval-split", "5"}).data.eval_split, (EvalSplit{.rows = 5}));
  const RunOptions other = options_of({"--load", run, "--eval-data", "b.jsonl"});
  EXPECT_EQ(other.data.eval_split, (EvalSplit{.share = 0.05})) << "what was held back is never trained on";
  EXPECT_THAT(other.data.eval_data, ElementsAre("b.jsonl"));
}

TEST(Options, ACopyOfStandardInputMovesWithItsRun) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory.path() + "/standard-input");
  (void)directory.file("standard-input/data.jsonl.gz", "");
  (void)directory.file("run.json", R"({"data": ["/elsewhere/standard-input/data.jsonl.gz", "/elsewhere/b.jsonl"]})");
  EXPECT_THAT(options_of({"--load", directory.path().c_str()}).data.data,
              ElementsAre(directory.path() + "/standard-input/data.jsonl.gz", "/elsewhere/b.jsonl"));
  EXPECT_THAT(with_absolute_paths(options_of({"--data", "-"})).data.data, ElementsAre("-"));
}

TEST(Options, WhatThisVersionLacksIsSaid) {
  const Refused rows[] = {
      {{"--device", "cpu", "--update-on", "host"}, "--update-on: found host, allowed in this version: auto, device"},
      {{"--sum-groups", "4"}, "--sum-groups: found 4, allowed in this version: 1"},
      {{"--device", "cpu", "--host-memory", "1GiB"}, "--host-memory: found 1GiB, allowed in this version: --device-memory"},
      {{"--device", "cpu", "--host-memory", "0"}, "--host-memory: found 0,"},
  };
  expect_refused(rows);
  EXPECT_EQ(options_of({"--device", "cpu-apart", "--host-memory", "1GiB", "--update-on", "host"}).memory.device,
            DeviceChoice::cpu_apart);
  // Only a run that takes the GPU checks that it exists.
  EXPECT_EQ(options_of({"--device", "cuda:3", "--host-memory", "1GiB"}).memory.gpus, std::vector{3});
  EXPECT_EQ(options_of({"--device", "cuda:1,0,1", "--ranks", "3"}).memory.gpus, (std::vector{1, 0, 1}));
  EXPECT_EQ(options_of({"--device", "auto"}).memory.device, DeviceChoice::automatic);
  for (const char* flag : {"--parameter-tier", "--optimizer-tier", "--activation-tier"}) {
    const std::string refusal = std::string(flag) + ": found host, allowed in this version: auto, device, ";
    EXPECT_REFUSED(options_of({"--device", "cpu", flag, "host", "--nvme", "/a"}), InputError, refusal.c_str());
  }
  for (const char* backend : {"ucc", "gloo"}) {
    const std::string refusal = std::string("--collectives: found \"") + backend + "\", allowed: auto";
    EXPECT_REFUSED(options_of({"--collectives", backend, "--ranks", "2"}), InputError, refusal.c_str());
  }
}

TEST(Options, AFlagWinsOverTheFile) {
  const TemporaryDirectory directory;
  const std::string file = directory.file("c.json", R"({"lr": 0.5, "min-lr": 0.125, "micro-batch-size": 2, "truncate": true,
      "data": ["a.txt", "b.txt"], "device-memory": 1048576, "nvme-tbw": "1KiB", "eval-data": "c.txt",
      "seed": 18446744073709551615})");
  const Parsed parsed = parse({"--config", file.c_str(), "--lr", "0.25"});
  const RunOptions& options = parsed.resolved.options;
  EXPECT_EQ(options.schedule.lr, 0.25);
  EXPECT_EQ(options.schedule.min_lr, 0.125);
  EXPECT_EQ(options.batch.micro_batch_size, 2);
  EXPECT_TRUE(options.data.truncate);
  EXPECT_THAT(options.data.data, ElementsAre("a.txt", "b.txt"));
  EXPECT_THAT(options.data.eval_data, ElementsAre("c.txt"));
  EXPECT_EQ(options.memory.budget[Tier::device], kMiB);
  EXPECT_EQ(options.log.nvme_tbw, kKiB);
  EXPECT_EQ(parsed.resolved.sources.at("lr"), OptionSource::flag);
  EXPECT_EQ(parsed.resolved.sources.at("min-lr"), OptionSource::config_file);
  EXPECT_FALSE(parsed.resolved.sources.contains("weight-decay"));

  const std::string table = print_config(parsed.resolved);
  EXPECT_TRUE(has_line(table, {"lr", "0.25", "flag"}));
  EXPECT_TRUE(has_line(table, {"min-lr", "0.125", "config", "file"}));
  EXPECT_TRUE(has_line(table, {"weight-decay", "0.01", "default"}));
  const auto json = nlohmann::json::parse(print_config(parse({"--config", file.c_str(), "--format", "json"}).resolved));
  EXPECT_EQ(json["lr"]["value"], 0.5);
  EXPECT_EQ(json["lr"]["from"], "config file");
}

TEST(Options, HostileFiles) {
  const std::vector<std::pair<const char*, const char*>> bad = {
      {R"({"lrr": 1})", "unknown key \"lrr\""},
      {R"({"lr": 1, "lr": 2})", "twice"},
      {R"({"lr": "1"})", "lr: found \"1\", allowed: a number"},
      {R"({"lr": null})", "null"},
      {R"({"lr": [1]})", "lr"},
      {R"({"lr": 1e999})", "number"},
      {R"({"lr": -1})", "lr: found \"-1"},
      {R"({"micro-batch-size": 1.5})", "whole number"},
      {R"({"micro-batch-size": true})", "whole number"},
      {R"({"micro-batch-size": 0})", "allowed: a whole number from 1"},
      {R"({"truncate": 1})", "true or false"},
      {R"({"data": [1]})", "array of strings"},
      {R"({"data": []})", "no value"},
      {R"({"device-memory": "1GB"})", "1GB"},
      {R"({"device-memory": -5})", "-5"},
      {R"({"dtype": 16})", "a string"},
      {R"({"lr": 1)", "not valid JSON at line 1"},
      {"[1]", "one JSON object"},
      {"", "empty"},
      {"\xff{}", "not valid JSON"},
      {R"({"config": "x.json"})", "unknown key"},
      {R"({"learning_rate": 1})", "unknown key \"learning_rate\"; here it is --lr"},
      {R"({"train_batch_size": 8})", "unknown key \"train_batch_size\"; here it is --global-batch-size"},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 3}})",
       "found 2 keys that are not read here: \"train_batch_size\" (--global-batch-size); \"zero_optimization\" (--zero-stage)"},
      {R"({"reduce_dtype": "bf16"})", "--reduce-dtype: this version's ranks add in fp32"},
      {R"({"print-config": true})", "unknown key"},
  };
  const TemporaryDirectory directory;
  for (const auto& [text, part] : bad) {
    const std::string file = directory.file("c.json", text);
    EXPECT_REFUSED(options_of({"--config", file.c_str()}), InputError, part);
    EXPECT_REFUSED(options_of({"--config", file.c_str()}), InputError, "c.json");
  }
  EXPECT_REFUSED(options_of({"--config", "/nonexistent/c.json"}), InputError, "--config: found no file /nonexistent/c.json");
  EXPECT_REFUSED(options_of({"--config", directory.path().c_str()}), InputError, "--config: found no file");
  const std::string deep = directory.file("deep.json", std::string(100'000, '[') + std::string(100'000, ']'));
  EXPECT_REFUSED(options_of({"--config", deep.c_str()}), InputError, "deep");
}

TEST(Options, LoadReadsTheRunsOptions) {
  const TemporaryDirectory directory;
  const RunOptions first = options_of({"--model", "gpt2", "--lr", "0.5", "--save", "/elsewhere", "--train-iters", "7"});
  nlohmann::json run = to_json(first);
  run["spillway"] = {{"version", "0.1.0"}};
  directory.file("run.json", run.dump());
  const Parsed parsed = parse({"--load", directory.path().c_str(), "--train-iters", "9"});
  EXPECT_EQ(parsed.resolved.options.schedule.lr, 0.5);
  EXPECT_EQ(parsed.resolved.options.batch.train_iters, 9);
  EXPECT_EQ(parsed.resolved.options.checkpoint.save, directory.path());
  EXPECT_EQ(parsed.resolved.options.checkpoint.load, directory.path());
  EXPECT_EQ(parsed.resolved.sources.at("lr"), OptionSource::loaded_run);
  EXPECT_EQ(options_of({"--load", directory.path().c_str(), "--save", "/other"}).checkpoint.save, "/other");
  EXPECT_REFUSED(options_of({"--load", "/nonexistent"}), InputError, "--load: found no file /nonexistent/run.json");
}

TEST(Options, ARunOfAnEarlierVersionKeepsWhatItHad) {
  EXPECT_EQ(options_of({}).data.train_on, TrainOn::assistant);
  EXPECT_EQ(options_of({}).data.text_ends, TextEnds::both);
  const TemporaryDirectory directory;
  const auto loaded = [&](std::vector<const char*> words) {
    words.insert(words.begin(), {"--load", directory.path().c_str()});
    return options_of(words).data;
  };
  nlohmann::json run = to_json(options_of({"--model", "gpt2"}));
  directory.file("run.json", run.dump());
  EXPECT_EQ(loaded({}).text_ends, TextEnds::both);
  run.erase("train-on");
  run.erase("text-ends");
  directory.file("run.json", run.dump());
  EXPECT_EQ(loaded({}).train_on, TrainOn::all);
  EXPECT_EQ(loaded({}).text_ends, TextEnds::none);
  EXPECT_EQ(loaded({"--train-on", "last"}).train_on, TrainOn::last);
  EXPECT_EQ(options_from_json_text(run.dump(), "run.json").data.text_ends, TextEnds::none);
}

TEST(Options, OfTwoWaysToSayTheSameTheStrongerSourceCounts) {
  const RunOptions epochs = options_of({"--epochs", "2.5", "--lr-warmup-fraction", "0.1"});
  EXPECT_EQ(epochs.batch.epochs, 2.5);
  EXPECT_EQ(epochs.schedule.lr_warmup_fraction, 0.1);
  EXPECT_FALSE(to_json(epochs).contains("train-iters"));
  EXPECT_FALSE(to_json(epochs).contains("lr-warmup-iters"));
  const Refused rows[] = {
      {{"--epochs", "2", "--train-iters", "5"}, "--epochs: found together with --train-iters, allowed: one of them"},
      {{"--lr-warmup-fraction", "0.1", "--lr-warmup-iters", "5"}, "--lr-warmup-fraction: found together with"},
      {{"--epochs", "0"}, "--epochs"},
      {{"--lr-warmup-fraction", "1.5"}, "--lr-warmup-fraction"},
  };
  expect_refused(rows);
  const TemporaryDirectory directory;
  const auto loaded = [&](const RunOptions& run, std::vector<const char*> words) {
    directory.file("run.json", to_json(run).dump());
    words.insert(words.begin(), {"--load", directory.path().c_str()});
    return options_of(words);
  };
  EXPECT_EQ(loaded(epochs, {"--train-iters", "7"}).batch.train_iters, 7);
  EXPECT_FALSE(loaded(epochs, {"--train-iters", "7"}).batch.epochs);
  EXPECT_EQ(loaded(options_of({"--train-iters", "7"}), {"--epochs", "3"}).batch.epochs, 3.0);
  EXPECT_EQ(loaded(options_of({"--lr-warmup-iters", "7"}), {"--lr-warmup-fraction", "0.5"}).schedule.lr_warmup_iters, 0);
}

TEST(Options, SequenceLengthFollowsTheModel) {
  EXPECT_EQ(seq_length_for(options_of({}), 512), 512);
  EXPECT_EQ(seq_length_for(options_of({}), 131072), 1024);
  EXPECT_EQ(seq_length_for(options_of({}), 0), 1024);
  EXPECT_EQ(seq_length_for(options_of({"--seq-length", "4096"}), 131072), 4096);
  EXPECT_REFUSED(seq_length_for(options_of({"--seq-length", "65"}), 64), InputError,
                 "--seq-length: found 65, allowed: at most 64");
}

TEST(Options, PathsBecomeAbsolute) {
  const RunOptions options = with_absolute_paths(options_of(
      {"--model", "gpt2-not-a-file", "--data", "a/../b.txt", "--tokenizer", "bytes", "--save", "run", "--nvme", "disk=1GiB"}));
  EXPECT_EQ(options.model.model, "gpt2-not-a-file");
  EXPECT_EQ(options.data.data[0], std::filesystem::current_path().string() + "/b.txt");
  EXPECT_EQ(options.data.tokenizer, "bytes");
  EXPECT_EQ(options.checkpoint.load, "");
  EXPECT_EQ(options.memory.nvme[0].path, std::filesystem::current_path().string() + "/disk");
}

// A damaged configuration must be read, or be refused by our own error and no other.
TEST(Options, DamagedConfigurationNeverEscapes) {
  const std::string text =
      R"({"lr": 0.5, "data": ["a.txt"], "device-memory": "1GiB", "seed": 7, "nvme": "/a=1KiB", "dtype": "bf16"})";
  std::uint32_t random = 1;
  for (int round = 0; round < 4000; ++round) {
    const std::string damaged = damaged_text(text, 1 + round % 3, random);
    try {
      (void)options_from_json_text(damaged, "c.json");
    } catch (const InputError&) {
    }
  }
}

}  // namespace
}  // namespace spillway
