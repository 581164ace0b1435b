// How options come in (defaults, a loaded run, a file, flags, in that order) and go out (run.json, --print-config).
// Not here: which options go together (validate_options.h).
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/options/options.h"
#include "trainer/options/raw_flags.h"

namespace spillway {

enum class OptionSource : std::uint8_t { by_default, loaded_run, deepspeed_default, deepspeed_file, config_file, flag };

struct ResolvedOptions {
  RunOptions options;
  std::map<std::string, OptionSource> sources;  // by flag name; absent: by default
  std::vector<std::string> notes;               // sentences on what files said without effect, for whoever gave the flags
};

// Order of precedence: defaults < run.json of --load DIR < --deepspeed-config FILE < --config FILE < flags; what DeepSpeed's JSON
// says itself may not differ from --config and flags. The result is validated. `--load DIR` also saves to DIR if --save is not
// given.
ResolvedOptions resolve_options(const RawFlags& flags);

// The output of --print-config: each option, its value and its source, as a table, or as JSON with `--format json`.
std::string print_config(const ResolvedOptions& resolved);

// The contents of run.json. Reading it back gives the same options. The program may add a key "spillway"; readers of options skip
// it.
nlohmann::json to_json(const RunOptions& options);
std::string to_json_text(const RunOptions& options);
// `origin` (a file name) is for messages. Refuses unknown, doubled and mistyped keys.
RunOptions options_from_json_text(std::string_view text, const std::string& origin);

// Makes paths absolute, so that a run directory can be loaded from elsewhere. Catalogue names and "bytes" stay as they are.
RunOptions with_absolute_paths(const RunOptions& options);

// If the device is the CPU, whose memory is the host's, resets the options of a loaded run and of DeepSpeed's JSON that concern a
// host apart from the device to their defaults, so that they are planned anew. resolve_options() calls it; call it again if
// --device becomes the CPU later.
void forget_host_of_files(ResolvedOptions& resolved);

// For commands that have no ranks, however many the loaded run has.
void use_one_rank(RunOptions& options);

}  // namespace spillway
