#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "tools/commands.h"
#include "trainer/options.h"
#include "trainer/trainer.h"

namespace spillway {

int train_command(int argc, const char* const* argv) {
  CLI::App app("Plan, then train.", "spillway train");
  RawFlags flags;
  add_run_flags(app, flags);
  if (const auto help = parse_command_line(app, argc, argv)) {
    fmt::print("{}", *help);
    return 0;
  }
  const ResolvedOptions resolved = resolve_options(flags);
  if (flags.print_config) {
    fmt::print("{}", print_config(resolved));
    return 0;
  }
  return train(resolved);
}

}  // namespace spillway
