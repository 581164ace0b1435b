// --config FILE.yaml: keys of ours in YAML, and the answers to keys of other trainers.
// Not here: YAML itself (tests/files/strict_yaml_test.cpp), the same of JSON (options_test.cpp).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "memory/base/error.h"
#include "tests/trainer/options/parsed_options.h"
#include "tests/trainer/temporary_directory.h"
#include "trainer/options/config_file.h"
#include "trainer/options/flag_table.h"
#include "trainer/options/foreign_flags.h"
#include "trainer/options/later_flags.h"
#include "trainer/words/nearest_name.h"

namespace spillway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// The refusal of this text as a file, as "message\nhelp", from "c.yaml: " on; empty if it is accepted.
std::string refusal(std::string_view text, const char* name = "c.yaml") {
  const TemporaryDirectory directory;
  const std::string file = directory.file(name, text);
  try {
    (void)options_of({"--config", file.c_str()});
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
    EXPECT_THAT(error.what(), StartsWith(directory.path()));
    return std::string(error.what()).substr(directory.path().size() + 1) + "\n" + error.help();
  }
  return {};
}

TEST(YamlConfig, SaysWhatTheSameJsonSays) {
  const TemporaryDirectory directory;
  const std::string yaml = directory.file("c.yaml", R"(# As people write it.
lr: 5e-1
min-lr: 0.125        # a rate
micro-batch-size: 2
truncate: true
packing: False
data:
  - a.txt
  - "b c.txt"
eval-data: d.txt
device-memory: 1048576
nvme-tbw: 1KiB
save: &runs runs/1
tensorboard: *runs
seed: 18446744073709551615
)");
  const std::string json = directory.file("c.json", R"({"lr": 0.5, "min-lr": 0.125, "micro-batch-size": 2, "truncate": true,
      "packing": false, "data": ["a.txt", "b c.txt"], "eval-data": "d.txt", "device-memory": 1048576, "nvme-tbw": "1KiB",
      "save": "runs/1", "tensorboard": "runs/1", "seed": 18446744073709551615})");
  const Parsed by_yaml = parse({"--config", yaml.c_str()});
  const Parsed by_json = parse({"--config", json.c_str()});
  EXPECT_EQ(to_json(by_yaml.resolved.options), to_json(by_json.resolved.options));
  EXPECT_EQ(by_yaml.resolved.sources, by_json.resolved.sources);
  EXPECT_EQ(by_yaml.resolved.options.schedule.lr, 0.5);
  EXPECT_THAT(by_yaml.resolved.options.data.data, ElementsAre("a.txt", "b c.txt"));
  EXPECT_EQ(by_yaml.resolved.options.log.tensorboard, "runs/1");
}

TEST(YamlConfig, AFlagWinsAndTheNameTellsTheForm) {
  const TemporaryDirectory directory;
  for (const char* name : {"c.yaml", "c.yml"}) {
    const std::string file = directory.file(name, "lr: 0.5\nmin-lr: 0.125\n");
    const Parsed parsed = parse({"--config", file.c_str(), "--lr", "0.25"});
    EXPECT_EQ(parsed.resolved.options.schedule.lr, 0.25);
    EXPECT_EQ(parsed.resolved.options.schedule.min_lr, 0.125);
    EXPECT_EQ(parsed.resolved.sources.at("lr"), OptionSource::flag);
    EXPECT_EQ(parsed.resolved.sources.at("min-lr"), OptionSource::config_file);
  }
  EXPECT_THAT(refusal("lr: 0.5\n", "c.json"), StartsWith("c.json: not valid JSON"));
  // JSON in flow style is YAML.
  EXPECT_EQ(refusal(R"({"lr": 0.5, "data": ["a.txt"]})"), "");
  EXPECT_REFUSED(options_of({"--config", "/nonexistent/c.yaml"}), InputError,
                 "--config: found no file /nonexistent/c.yaml, allowed: a JSON or YAML file of options");
}

TEST(YamlConfig, HostileFiles) {
  const std::pair<const char*, const char*> rows[] = {
      {"lr: 1\nlrr: 1\n", "c.yaml: line 2: found unknown key \"lrr\"\ndid you mean --lr?"},
      {"lr: 1\nlr: 2\n", "c.yaml: line 2: the key \"lr\" is there twice, first on line 1"},
      {"\nlr: \"1\"\n", "c.yaml: line 2: lr: found \"1\", allowed: a number without quotes"},
      {"lr:\n", "c.yaml: line 1: lr: found null, allowed: a number without quotes"},
      {"lr: [1]\n", "c.yaml: line 1: lr: found a list of 1 values"},
      {"lr: .inf\n", "c.yaml: line 1: lr: found \".inf\""},
      {"lr: 1e999\n", "c.yaml: line 1: lr: found \"1e999\""},
      {"lr: -1\n", "c.yaml: line 1: lr: found \"-1\""},
      {"micro-batch-size: 1.5\n", "allowed: a whole number"},
      {"micro-batch-size: 0x10\n", "allowed: a whole number"},
      {"micro-batch-size: 1_000\n", "allowed: a whole number"},
      {"micro-batch-size: 0\n", "allowed: a whole number from 1"},
      {"truncate: 1\n", "line 1: truncate: found \"1\", allowed: true or false"},
      {"truncate: yes\n", "allowed: true or false"},
      {"truncate: \"true\"\n", "allowed: true or false"},
      {"data: []\n", "line 1: data: found no value"},
      {"data: [[a]]\n", "line 1: data: found a list of 1 values, allowed: a text, or a list of texts"},
      {"data: {a: b}\n", "line 1: data: found a block of 1 keys, allowed: a text, or a list of texts"},
      {"data: [~]\n", "line 1: data: found a list of 1 values"},
      {"device-memory: 1GB\n", "1GB"},
      {"device-memory: -5\n", "-5"},
      {"dtype: 16\n", "line 1: dtype: found \"16\""},
      {"dtype: [bf16]\n", "line 1: dtype: found a list of 1 values, allowed: a text"},
      {"lr: 1\n---\nlr: 2\n", "found a second document"},
      {"- lr\n", "c.yaml: line 1: found a list of 1 values, allowed: one block of keys"},
      {"lr\n", "c.yaml: line 1: found \"lr\", allowed: one block of keys"},
      {"", "c.yaml: is empty"},
      {"lr: 1\n  min-lr: 2\n", "c.yaml: not valid YAML at line 2"},
      {"config: x.yaml\n", "line 1: found unknown key \"config\"\nIt is a flag only: give it beside --config."},
      {"deepspeed-config: x.json\n", "line 1: found unknown key \"deepspeed-config\"\nIt is a flag only"},
      {"lrr: 1\ndeepspeed-config: x.json\n", "line 1: \"lrr\" (lr?); line 2: \"deepspeed-config\" (a flag only)"},
      {"spillway: {version: 1}\n", "unknown key \"spillway\""},
  };
  for (const auto& [text, part] : rows) EXPECT_THAT(refusal(text), HasSubstr(part)) << text;
  EXPECT_THAT(refusal(std::string(2 << 20, '#')), HasSubstr("c.yaml"));
  EXPECT_THAT(refusal(std::string(100'000, '[')), StartsWith("c.yaml: "));
}

TEST(YamlConfig, KeysOfOthersAreAnsweredTogether) {
  const std::string axolotl = refusal(R"(base_model: org/name
datasets:
  - path: rows.jsonl
    type: alpaca
adapter: qlora
lora_r: 8
sequence_len: 512
micro_batch_size: 2
gradient_accumulation_steps: 4
optimizer: paged_adamw_8bit
lr: 0.1
flash_attention: true
)");
  EXPECT_EQ(axolotl,
            "c.yaml: found 9 keys that are not read here: line 1: \"base_model\" (--model); line 2: \"datasets\" (--data); "
            "line 5: \"adapter\" (--lora-rank); line 6: \"lora_r\" (--lora-rank); line 7: \"sequence_len\" (--seq-length); "
            "line 8: \"micro_batch_size\" (written micro-batch-size); line 9: \"gradient_accumulation_steps\" "
            "(--global-batch-size); line 10: \"optimizer\" (--optimizer adamw); line 12: \"flash_attention\" (leave it out)\n"
            "In brackets: what they are here. Keys are the names of the flags, without dashes in front: spillway train "
            "--help lists them.");
  const std::string llama_factory = refusal(R"(model_name_or_path: org/name
stage: sft
finetuning_type: lora
lora_target: all
cutoff_len: 2048
per_device_train_batch_size: 1
num_train_epochs: 3.0
output_dir: saves/x
)");
  for (const char* answer :
       {"\"model_name_or_path\" (--model)", "\"finetuning_type\" (--lora-rank, --lora-alpha and --lora-targets)",
        "\"lora_target\" (--lora-targets)", "\"cutoff_len\" (--seq-length)",
        "\"per_device_train_batch_size\" (--micro-batch-size)", "\"num_train_epochs\" (--epochs)", "\"output_dir\" (--save)"})
    EXPECT_THAT(llama_factory, HasSubstr(answer));
}

TEST(YamlConfig, OneKeyOfOthersIsAnsweredWithASentence) {
  EXPECT_EQ(refusal("learning_rate: 1\n"),
            "c.yaml: line 1: found unknown key \"learning_rate\"; here it is --lr\nThe rate after warm-up.");
  EXPECT_EQ(refusal("\nadam_beta1: 1\n"), "c.yaml: line 2: found unknown key \"adam_beta1\"; here it is written --adam-beta1\n");
  EXPECT_THAT(refusal("adapter: lora\n"), StartsWith("c.yaml: line 1: adapter: found \"lora\"; here it is --lora-rank\n"));
  EXPECT_THAT(refusal("reduce_dtype: bf16\n"), StartsWith("c.yaml: line 1: --reduce-dtype: this version's ranks add in fp32"));
  EXPECT_THAT(refusal("dpo_beta: 0.1\n"), HasSubstr("has no preferences"));
}

// Another trainer's value is a value of ours where a directory has its name.
TEST(YamlConfig, ADirectoryOfTheNameIsMeant) {
  const std::string text = "adapter: lora\n";
  EXPECT_THROW((void)parse_yaml_config(text, "c.yaml"), InputError);
  const TemporaryDirectory directory;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(directory.path());
  std::filesystem::create_directory("lora");
  const ConfigFile file = parse_yaml_config(text, "c.yaml");
  std::filesystem::current_path(before);
  EXPECT_THAT(file.given.at("adapter"), ElementsAre("lora"));
  // A run's own file is in our words: its adapter is where it was, or it is missed by its name.
  EXPECT_THAT(parse_config_text(R"({"adapter": "lora"})", "run.json").given.at("adapter"), ElementsAre("lora"));
}

TEST(YamlConfig, ManyStrangeKeysAreOneMessageOfBoundedLength) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "zzz" + std::to_string(i) + ": 1\n";
  const std::string said = refusal(text);
  EXPECT_THAT(said, StartsWith("c.yaml: found 5000 keys that are not read here: line 1: \"zzz0\" (unknown); "));
  EXPECT_THAT(said, HasSubstr("; and 4940 more\n"));
  EXPECT_LT(said.size(), 4000U);
}

TEST(YamlConfig, EveryKeyThatOtherTrainersDeclareIsAnswered) {
  std::ifstream file(SPILLWAY_TEST_DATA "/foreign_keys/names.json");
  const nlohmann::json names = nlohmann::json::parse(file);
  std::size_t seen = 0;
  for (const char* trainer : {"hugging_face", "axolotl", "llama_factory", "their_examples"}) {
    for (const std::string name : names.at(trainer)) {
      const std::string dashed = with_dashes(name);
      const bool is_answered =
          find_flag(dashed) != nullptr || find_foreign_flag(dashed) != nullptr || find_later_flag(dashed) != nullptr;
      EXPECT_TRUE(is_answered) << trainer << ": " << name;
      ++seen;
    }
  }
  EXPECT_GT(seen, 500U);
}

}  // namespace
}  // namespace spillway
