// Names of flags and settings in other trainers, with our equivalents: Hugging Face's Trainer and its examples, PEFT and TRL,
// DeepSpeed, llm.c, nanoGPT and Megatron-LM. They serve messages only; no such name is accepted.
// Not here: our own flags (flag_table.h), and our flags that wait for a later version (later_flags.h).
#pragma once

#include <span>
#include <string_view>

namespace spillway {

struct ForeignFlags {
  std::string_view names;  // names of one meaning, separated by blanks; dashes for underscores; short ones as "-b"
  std::string_view ours;   // our flags, separated by blanks; empty if there is nothing to give
  std::string_view how;    // sentences: how values are converted, or what happens instead
};

std::span<const ForeignFlags> foreign_flags();

// `name` as it was typed: "learning_rate", "learning-rate" or "-l". Null if no other trainer has that name.
const ForeignFlags* find_foreign_flag(std::string_view name);

}  // namespace spillway
