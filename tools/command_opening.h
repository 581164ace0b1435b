// How every subcommand begins and ends: its flags are parsed, help and --print-config are answered, its result is put out.
// Not here: the flags themselves (trainer/options/options.h, and each command's own beside it).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/options/command_line.h"
#include "trainer/options/resolve_options.h"

namespace spillway {

// Parses the flags declared on `command`. True where help was asked for, which is printed then: the command is done.
bool help_was_asked(CommandLine& command, int argc, const char* const* argv);

// What a command does with the run flags: all are declared where `only` is empty. What a command does not use it does not have.
struct RunFlagUse {
  std::vector<std::string_view> only = {};
  std::vector<std::string_view> formats = {};  // of its result, the default first; empty: it writes none, and has no --out
  RawFlags* typed = nullptr;                   // where what was typed is kept, for those who resolve it again with a change
};

// Declares the run flags on `command`, after those that it has, parses and resolves them; what --out's ending says of the format
// is in the options then. None where --help or --print-config was answered: the command is done.
std::optional<ResolvedOptions> resolve_run_flags(CommandLine& command, int argc, const char* const* argv, const RunFlagUse& use);

// Into the file of `--out` where one was named, else printed.
void put_out(const std::string& text, const std::string& out);

// Which device of this machine a command takes (trainer/machine/open_device.h), and says so on the standard error.
void settle_device_of(ResolvedOptions& resolved);

}  // namespace spillway
