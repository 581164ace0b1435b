// What flags and settings of other trainers are here: of Hugging Face's Trainer and its examples, PEFT and TRL, DeepSpeed, llm.c,
// nanoGPT and Megatron-LM. For messages alone; none of these names is taken.
// Not here: our own flags (flag_table.h), and those of ours that wait for a later version (later_flags.h).
#pragma once

#include <span>
#include <string_view>

namespace spillway {

struct ForeignFlags {
  std::string_view names;  // of one meaning, separated by blanks; long ones with dashes for underscores, short ones as "-b"
  std::string_view ours;   // separated by blanks; empty where there is nothing to give
  std::string_view how;    // sentences: how values are converted, or what happens instead
};

std::span<const ForeignFlags> foreign_flags();

// `name` as it was said: "learning_rate", "learning-rate" or "-l". Null where nobody has such a one.
const ForeignFlags* find_foreign_flag(std::string_view name);

}  // namespace spillway
