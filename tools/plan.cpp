#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "memory/error.h"
#include "models/posix_file.h"
#include "tools/commands.h"
#include "trainer/options.h"
#include "trainer/plan_file.h"
#include "trainer/plan_report.h"
#include "trainer/prepared_run.h"

namespace spillway {

int plan_command(int argc, const char* const* argv) {
  CLI::App app("Say before anything runs where every byte will live, how long a step will take and why.", "spillway plan");
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
  const RunOptions& options = resolved.options;
  require_model(options);
  if (options.log.format == OutputFormat::html) throw InputError("--format html: this version writes table and json", "Use --format json.");
  const PreparedModel model(options);
  const PlannedRun run = plan_run(options, model);
  const bool table = options.log.format == OutputFormat::table;
  const std::string text = table ? plan_table(run, model, options) : plan_json(run, model, options);
  if (options.log.out.empty()) {
    fmt::print("{}", text);
  } else {
    write_text_file(options.log.out, text);
  }
  if (!run.outcome.plan) throw_does_not_fit(run);
  return 0;
}

}  // namespace spillway
