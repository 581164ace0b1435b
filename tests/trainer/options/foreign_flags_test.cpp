// Answers to flags that are not ours, or not yet: the tables, and the messages made from them.
#include "trainer/options/foreign_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "memory/base/error.h"
#include "trainer/options/command_line.h"
#include "trainer/options/flag_table.h"
#include "trainer/options/help_text.h"
#include "trainer/options/later_flags.h"
#include "trainer/options/options.h"
#include "trainer/options/unknown_flag.h"

namespace spillway {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::vector<std::string> words(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::vector<std::string> found;
  for (std::string word; in >> word;) found.push_back(word);
  return found;
}

// The refusal of a command line, as "message\nhelp"; empty if it is accepted.
std::string refusal(std::vector<const char*> arguments, std::vector<std::string_view> only = {}) {
  CommandLine command("spillway train", "trains");
  RawFlags flags;
  if (only.empty()) {
    command.add_run_flags(flags);
  } else {
    command.add_run_flags(flags, only);
  }
  arguments.insert(arguments.begin(), "train");
  try {
    command.parse(static_cast<int>(arguments.size()), arguments.data());
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
    return std::string(error.what()) + "\n" + error.help();
  }
  return {};
}

TEST(ForeignFlags, TheTablesAgreeWithOurFlags) {
  std::set<std::string> seen;
  for (const ForeignFlags& row : foreign_flags()) {
    EXPECT_FALSE(row.ours.empty() && row.how.empty()) << row.names;
    EXPECT_TRUE(row.how.empty() || row.how.ends_with('.')) << row.how;
    for (const std::string& name : words(row.names)) {
      EXPECT_TRUE(seen.insert(name).second) << name << " has two answers";
      EXPECT_EQ(find_flag(name), nullptr) << name << " is ours";
      EXPECT_EQ(find_foreign_flag(name), &row) << name;
      EXPECT_EQ(name.find('_'), name.npos) << name;
    }
    for (const std::string& ours : words(row.ours)) {
      EXPECT_TRUE(find_flag(ours.substr(2)) != nullptr || ours == "--deepspeed-config") << ours << " of " << row.names;
    }
  }
  for (const LaterFlags& row : later_flags()) {
    EXPECT_TRUE(row.instead.ends_with('.')) << row.instead;
    for (const std::string& name : words(row.names)) {
      EXPECT_TRUE(seen.insert(name).second) << name << " has two answers";
      EXPECT_EQ(find_flag(name), nullptr) << name << " is there already";
      EXPECT_EQ(find_later_flag(name), &row) << name;
    }
  }
}

// "galore-*" stands for all names that begin so: none of ours may, and a whole name has its own answer first.
TEST(ForeignFlags, BeginningsTakeNoneOfOurs) {
  int beginnings = 0;
  for (const ForeignFlags& row : foreign_flags()) {
    for (const std::string& name : words(row.names)) {
      if (!name.ends_with('*')) continue;
      ++beginnings;
      const std::string beginning = name.substr(0, name.size() - 1);
      EXPECT_TRUE(beginning.ends_with('-')) << name;
      for (const std::string& ours : flag_names()) EXPECT_FALSE(ours.starts_with(beginning)) << ours;
    }
  }
  EXPECT_GT(beginnings, 10);
  EXPECT_EQ(find_foreign_flag("wandb_entity"), find_foreign_flag("wandb-*"));
  EXPECT_THAT(find_foreign_flag("sample_packing_bin_size")->ours, HasSubstr("--packing"));
  EXPECT_NE(find_foreign_flag("eval_on_start"), find_foreign_flag("eval_on_each_dataset"));
  EXPECT_EQ(find_foreign_flag("wandb"), find_foreign_flag("wandb-*"));
  EXPECT_EQ(find_foreign_flag("galoree"), nullptr);
}

TEST(ForeignFlags, ValuesAreOfFlagsOfOurs) {
  for (const ForeignValues& row : foreign_values()) {
    EXPECT_NE(find_flag(row.name), nullptr) << row.name;
    EXPECT_TRUE(row.how.ends_with('.')) << row.how;
    EXPECT_TRUE(row.ours.starts_with("--")) << row.ours;
    for (const std::string& value : words(row.values)) EXPECT_EQ(find_foreign_value(row.name, value), &row) << value;
    EXPECT_EQ(find_foreign_value(row.name, ""), nullptr);
  }
  EXPECT_EQ(find_foreign_value("optimizer", "adamw"), nullptr);
  EXPECT_EQ(find_foreign_value("optimizer", "sg"), nullptr);
}

// Flags named in the sentences must be ours, too.
TEST(ForeignFlags, SentencesNameNoFlagThatIsNotThere) {
  const std::set<std::string> of_commands = {"config", "deepspeed-config", "merge", "step"};
  const auto check = [&](std::string_view text) {
    for (std::string word : words(text)) {
      while (!word.empty() && std::string("([,.;:)").find(word.back()) != std::string::npos) word.pop_back();
      if (word.starts_with("(")) word.erase(0, 1);
      if (!word.starts_with("--")) continue;
      EXPECT_TRUE(find_flag(word.substr(2)) != nullptr || of_commands.contains(word.substr(2))) << word << " in: " << text;
    }
  };
  for (const ForeignFlags& row : foreign_flags()) check(row.how);
  for (const LaterFlags& row : later_flags()) check(row.instead);
  for (const ForeignValues& row : foreign_values()) {
    check(row.ours);
    check(row.how);
  }
}

const std::pair<const char*, const char*> kAnswers[] = {
    // Hugging Face
    {"--per_device_train_batch_size", "--micro-batch-size"},
    {"--per-device-train-batch-size", "--micro-batch-size"},
    {"--gradient_accumulation_steps", "--global-batch-size"},
    {"--learning_rate", "--lr"},
    {"--max_steps", "--train-iters"},
    {"--num_train_epochs", "--epochs"},
    {"--warmup_steps", "--lr-warmup-iters"},
    {"--warmup_ratio", "--lr-warmup-fraction"},
    {"--lr_scheduler_type", "--lr-decay-style"},
    {"--max_grad_norm", "--clip-grad"},
    {"--adam_epsilon", "--adam-eps"},
    {"--optim", "--optimizer"},
    {"--bf16", "--dtype"},
    {"--fp16", "--dtype"},
    {"--tf32", "--dtype"},
    {"--gradient_checkpointing", "--activation-tier"},
    {"--output_dir", "--save"},
    {"--save_steps", "--save-interval"},
    {"--save_total_limit", "--keep-last"},
    {"--eval_steps", "--eval-interval"},
    {"--logging_steps", "--log-interval"},
    {"--logging_dir", "--tensorboard"},
    {"--report_to", "--tensorboard"},
    {"--resume_from_checkpoint", "--load"},
    {"--model_name_or_path", "--model"},
    {"--tokenizer_name", "--tokenizer"},
    {"--train_file", "--data"},
    {"--dataset_name", "--data"},
    {"--validation_file", "--eval-data"},
    {"--block_size", "--seq-length"},
    {"--max_seq_length", "--seq-length"},
    {"--dataloader_drop_last", "--drop-last"},
    {"--fsdp", "--zero-stage"},
    {"--deepspeed", "--deepspeed-config"},
    {"--use_cpu", "--device"},
    {"--load_best_model_at_end", "--keep-best"},
    {"--validation_split_percentage", "--eval-split"},
    {"--dataset_text_field", "--data-columns"},
    {"--ddp_backend", "--collectives"},
    {"--ddp_timeout", "--rendezvous-timeout"},
    // Launchers and LLaMA-Factory
    {"--nproc-per-node", "--ranks"},
    {"--hostfile", "--ranks"},
    {"--val_size", "--eval-split"},
    // DeepSpeed
    {"--train_batch_size", "--global-batch-size"},
    {"--train_micro_batch_size_per_gpu", "--micro-batch-size"},
    {"--gradient_clipping", "--clip-grad"},
    {"--offload_optimizer", "--optimizer-tier"},
    {"--cpu-offload", "--nvme"},
    {"--nvme_path", "--nvme"},
    {"--num_gpus", "--ranks"},
    // llm.c
    {"-i", "--data"},
    {"-j", "--eval-data"},
    {"-e", "--model"},
    {"-o", "--save"},
    {"-b", "--micro-batch-size"},
    {"-t", "--seq-length"},
    {"-d", "--global-batch-size"},
    {"-x", "--train-iters"},
    {"-l", "--lr"},
    {"-u", "--lr-warmup-iters"},
    {"-q", "--min-lr"},
    {"-c", "--weight-decay"},
    {"-v", "--eval-interval"},
    {"-s", "--sample-interval"},
    {"-g", "--sample-tokens"},
    {"-n", "--save-interval"},
    {"-nk", "--keep-last"},
    {"-y", "--load"},
    {"-z", "--zero-stage"},
    {"-r", "--activation-tier"},
    {"--input_bin", "--data"},
    {"--input_val_bin", "--eval-data"},
    {"--batch_size", "--micro-batch-size"},
    {"--sequence_length", "--seq-length"},
    {"--total_batch_size", "--global-batch-size"},
    {"--num_iterations", "--train-iters"},
    {"--warmup_iters", "--lr-warmup-iters"},
    {"--learning_rate_decay_frac", "--min-lr"},
    {"--grad_clip", "--clip-grad"},
    {"--val_loss_every", "--eval-interval"},
    {"--sample_every", "--sample-interval"},
    // Megatron-LM
    {"--tensor-model-parallel-size", "--ranks"},
    {"--pipeline-model-parallel-size", "--ranks"},
    {"--recompute-activations", "--activation-tier"},
    {"--train-samples", "--train-iters"},
    {"--data-path", "--data"},
    {"--tensorboard-dir", "--tensorboard"},
    {"--use-distributed-optimizer", "--zero-stage"},
    {"--optimizer-cpu-offload", "--optimizer-tier"},
    {"--num-layers", "--model"},
    {"--eval-iters", "--eval-data"},
};

TEST(ForeignFlags, AreAnsweredWithOurs) {
  for (const auto& [theirs, ours] : kAnswers) {
    const std::string message = std::string("found unknown flag ") + theirs + "; here it is ";
    for (const std::string& said : {refusal({theirs, "4"}), refusal({"--lr", "1", (std::string(theirs) + "=4").c_str()})}) {
      EXPECT_THAT(said, StartsWith(message));
      const std::string line = said.substr(0, said.find('\n'));
      const auto has = [&](const std::string& word) { return std::ranges::count(words(line), word) > 0; };
      EXPECT_TRUE(has(ours) || has(std::string(ours) + ",")) << line;
    }
  }
}

// Ranks are threads or processes, whoever starts them.
TEST(ForeignFlags, LaunchersAreNoStrangers) {
  for (const char* theirs : {"--nnodes", "--rdzv-endpoint", "--local-rank", "--dist-backend", "--distributed-timeout-minutes"})
    EXPECT_THAT(refusal({theirs}), Not(HasSubstr("no launcher"))) << theirs;
  EXPECT_THAT(refusal({"--nnodes"}), HasSubstr("torchrun, mpirun and srun start them as processes"));
  EXPECT_THAT(refusal({"--dist-backend"}), HasSubstr("over tcp, by mpi or by nccl"));
  EXPECT_THAT(refusal({"--ddp-timeout"}), HasSubstr("wait for each other, in seconds"));
}

TEST(ForeignFlags, SomeHaveNoneOfOurs) {
  for (const char* theirs : {"--torch_compile", "--full_determinism", "--dataloader_num_workers", "--overlap_comm"}) {
    const std::string said = refusal({theirs});
    EXPECT_THAT(said, StartsWith(std::string("found unknown flag ") + theirs + "\n")) << said;
    EXPECT_THAT(said, testing::EndsWith(".")) << said;
  }
}

TEST(ForeignFlags, OursInAnotherSpelling) {
  EXPECT_EQ(refusal({"--adam_beta1", "0.9"}), "found unknown flag --adam_beta1; here it is written --adam-beta1\n");
  EXPECT_EQ(refusal({"--micro_batch_size=4"}), "found unknown flag --micro_batch_size; here it is written --micro-batch-size\n");
}

TEST(ForeignFlags, AnswersFitTheCommand) {
  // A command without --lr has no use for it as an answer.
  EXPECT_THAT(refusal({"--learning-rate", "1"}, {"model", "seq-length"}), Not(HasSubstr("--lr")));
  EXPECT_THAT(refusal({"--block-size", "1"}, {"model", "seq-length"}), HasSubstr("here it is --seq-length"));
  EXPECT_THAT(refusal({"--lr", "1"}, {"model", "seq-length"}), StartsWith("found --lr, which spillway train does not use\n"));
}

TEST(LaterFlags, AreRefusedByName) {
  for (const LaterFlags& row : later_flags()) {
    for (const std::string& name : words(row.names)) {
      const std::string flag = "--" + name;
      EXPECT_THAT(refusal({flag.c_str(), "1"}), StartsWith(flag + ": ")) << name;
      EXPECT_THAT(refusal({(flag + "=1").c_str()}), StartsWith(flag + ": ")) << name;
    }
  }
  EXPECT_THAT(refusal({"--reduce_dtype", "bf16"}), StartsWith("--reduce-dtype: this version's ranks add in fp32"));
}

TEST(HelpText, IsAtMostAHundredColumns) {
  std::istringstream lines(words_of_plans());
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
  for (const char* word : {"unit", "tier", "lane", "order", "update", "horizontal", "vertical", "in-backward"})
    EXPECT_THAT(words_of_plans(), HasSubstr(word));
}

}  // namespace
}  // namespace spillway
