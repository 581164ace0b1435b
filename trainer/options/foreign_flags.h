// Names of flags and settings in other trainers, with our equivalents: Hugging Face's Trainer and its examples, PEFT and TRL,
// Axolotl, LLaMA-Factory, DeepSpeed, llm.c, nanoGPT and Megatron-LM. They serve messages only; no such name is accepted.
// Not here: our own flags (flag_table.h), and our flags that wait for a later version (later_flags.h).
#pragma once

#include <span>
#include <string_view>

namespace spillway {

struct ForeignFlags {
  // Names of one meaning, separated by blanks; dashes for underscores; short ones as "-b"; "galore-*" for all that begin so.
  std::string_view names;
  std::string_view ours;  // our flags, separated by blanks; empty if there is nothing to give
  std::string_view how;   // sentences: how values are converted, or what happens instead
};

std::span<const ForeignFlags> foreign_flags();

// `name` as it was typed: "learning_rate", "learning-rate" or "-l". Null if no other trainer has that name.
const ForeignFlags* find_foreign_flag(std::string_view name);

// Values that other trainers give to names that are ours, too.
struct ForeignValues {
  std::string_view name;    // a flag of ours, without dashes
  std::string_view values;  // separated by blanks
  std::string_view ours;    // what stands for them here
  std::string_view how;     // sentences
};

std::span<const ForeignValues> foreign_values();
const ForeignValues* find_foreign_value(std::string_view name, std::string_view value);

}  // namespace spillway
