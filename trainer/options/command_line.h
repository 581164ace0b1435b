// The command line: which flags a command has, and what was typed of them.
// Not here: what flags mean (flag_table.h), what becomes of what was typed (resolve_options.h).
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace spillway {

// What was typed, by flag name without its dashes. Filled by CLI11 while it parses.
struct RawFlags {
  std::map<std::string, std::vector<std::string>> given;
  bool print_config = false;
};

// Declares every run flag on a subcommand, or those of `names` alone. `flags` must outlive the parse.
void add_run_flags(CLI::App& app, RawFlags& flags);
void add_run_flags(CLI::App& app, RawFlags& flags, std::span<const std::string_view> names);
// --config and --print-config, which the former declares, too.
void add_config_flags(CLI::App& app, RawFlags& flags);

// Parses, and turns every complaint of CLI11 into an InputError (unknown flags with the nearest known one). Help that was asked
// for is the text that it returns, to print and exit 0; otherwise nothing.
std::optional<std::string> parse_command_line(CLI::App& app, int argc, const char* const* argv);

}  // namespace spillway
