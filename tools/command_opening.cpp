#include "tools/command_opening.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "models/posix_file.h"
#include "tools/standard_output.h"

namespace spillway {

bool help_was_asked(CLI::App& app, int argc, const char* const* argv) {
  const std::optional<std::string> help = parse_command_line(app, argc, argv);
  if (help) put(*help);
  return help.has_value();
}

std::optional<ResolvedOptions> resolve_run_flags(CLI::App& app, int argc, const char* const* argv, RawFlags* typed) {
  RawFlags own;
  RawFlags& flags = typed != nullptr ? *typed : own;
  add_run_flags(app, flags);
  if (help_was_asked(app, argc, argv)) return std::nullopt;
  ResolvedOptions resolved = resolve_options(flags);
  if (!flags.print_config) return resolved;
  put(print_config(resolved));
  return std::nullopt;
}

void put_out(const std::string& text, const std::string& out) {
  if (out.empty()) {
    put(text);
  } else {
    write_text_file(out, text);
  }
}

}  // namespace spillway
