// A command line of `spillway train` as it is understood, for the tests of options and of the command line itself.
#pragma once

#include <CLI/CLI.hpp>
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
  CLI::App app("trains", "spillway");
  CLI::App* train = app.add_subcommand("train", "trains");
  app.require_subcommand(1);
  Parsed parsed;
  add_run_flags(*train, parsed.flags);
  arguments.insert(arguments.begin(), {"spillway", "train"});
  parsed.help = parse_command_line(app, static_cast<int>(arguments.size()), arguments.data());
  if (!parsed.help) parsed.resolved = resolve_options(parsed.flags);
  return parsed;
}

inline RunOptions options_of(std::vector<const char*> arguments) { return parse(std::move(arguments)).resolved.options; }

}  // namespace spillway
