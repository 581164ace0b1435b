// The common beginning and end of every subcommand: parses its flags, answers help and --print-config, writes its result.
// Not here: the flags themselves (trainer/options/options.h, and each command's own beside it).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/host/launch.h"
#include "trainer/options/command_line.h"
#include "trainer/options/resolve_options.h"

namespace spillway {

// Parses the flags declared on `command`. Returns true if help was asked for; it has been printed, and the command is done.
bool help_was_asked(CommandLine& command, int argc, const char* const* argv);

// The run flags that a command has; if `only` is empty, all. A command has no flags that it does not use.
struct RunFlagUse {
  std::vector<std::string_view> only = {};
  std::vector<std::string_view> formats = {};  // formats of its result, the default first; empty: no result, and no --out
  std::optional<Launch> launch = {};           // where this process is one of several ranks
  RawFlags* typed = nullptr;                   // keeps the typed flags, for commands that resolve them again with a change
};

// Declares the run flags on `command`, after its own flags, then parses and resolves them. The options then have the format that
// --format or --out's ending selects. Returns nothing if --help or --print-config was answered: the command is done.
std::optional<ResolvedOptions> resolve_run_flags(CommandLine& command, int argc, const char* const* argv, const RunFlagUse& use);

// Writes to the file of `--out` if one was named, else prints.
void put_out(const std::string& text, const std::string& out);

// Chooses the device of this machine that a command takes (trainer/machine/open_device.h), and says so on standard error.
void settle_device_of(ResolvedOptions& resolved);

}  // namespace spillway
