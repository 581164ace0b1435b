// The ways options come in (defaults, a loaded run, a file, flags, in that order) and go out (run.json, --print-config).
// Not here: which go together (validate_options.h).
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "trainer/options/options.h"
#include "trainer/options/raw_flags.h"

namespace spillway {

enum class OptionSource : std::uint8_t { by_default, loaded_run, config_file, flag };

struct ResolvedOptions {
  RunOptions options;
  std::map<std::string, OptionSource> sources;  // by flag name; absent: by default
};

// Defaults < run.json of --load DIR < --config FILE < flags; then validated. `--load DIR` saves to DIR where --save is not given.
ResolvedOptions resolve_options(const RawFlags& flags);

// What --print-config prints: each option, its value and where it came from, as a table, or as JSON with `--format json`.
std::string print_config(const ResolvedOptions& resolved);

// run.json. Reading it back gives the same options. A key "spillway" may be added by the program; readers of options skip it.
nlohmann::json to_json(const RunOptions& options);
std::string to_json_text(const RunOptions& options);
// `origin` (a file name) is for messages. Unknown, doubled and mistyped keys are refused.
RunOptions options_from_json_text(std::string_view text, const std::string& origin);

// Paths made absolute, so that a run directory can be loaded from elsewhere. Catalogue names and "bytes" stay.
RunOptions with_absolute_paths(const RunOptions& options);

// Where the device is the CPU, whose memory is the host's: options of a loaded run that speak of a host apart from it go back to
// their defaults, and are planned anew. resolve_options() does so; again where --device becomes the CPU after that.
void forget_host_of_loaded_run(ResolvedOptions& resolved);

}  // namespace spillway
