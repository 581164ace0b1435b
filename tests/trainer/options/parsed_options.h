// Parses a command line of `spillway train`, for the tests of options and of the command line itself.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/options/command_line.h"
#include "trainer/options/options.h"
#include "trainer/options/resolve_options.h"

namespace spillway {

struct Parsed {
  ResolvedOptions resolved;
  RawFlags flags;
  std::optional<std::string> help;
};

inline Parsed parse(std::vector<const char*> arguments) {
  CommandLine command("spillway train", "trains");
  Parsed parsed;
  command.add_run_flags(parsed.flags);
  arguments.insert(arguments.begin(), "train");
  parsed.help = command.parse(static_cast<int>(arguments.size()), arguments.data());
  if (!parsed.help) parsed.resolved = resolve_options(parsed.flags);
  return parsed;
}

inline RunOptions options_of(std::vector<const char*> arguments) { return parse(std::move(arguments)).resolved.options; }

}  // namespace spillway
