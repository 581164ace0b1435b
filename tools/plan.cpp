#include <CLI/CLI.hpp>

#include "tools/command_opening.h"
#include "tools/commands.h"
#include "trainer/plan_file.h"
#include "trainer/plan_lifts.h"
#include "trainer/plan_page.h"
#include "trainer/plan_report.h"
#include "trainer/prepared_run.h"

namespace spillway {

int plan_command(int argc, const char* const* argv) {
  CLI::App app("Say before anything runs where every byte will live, how long a step will take and why.", "spillway plan");
  const auto resolved = resolve_run_flags(app, argc, argv);
  if (!resolved) return 0;
  const RunOptions& options = resolved->options;
  require_model(options);
  const PreparedModel model(options, Where::anywhere);
  PlannedRun run = plan_run(options, model, Where::anywhere);
  run.lifts = lifts_of(run, model, options);
  const std::string text = options.log.format == OutputFormat::table  ? plan_table(run, model, options)
                           : options.log.format == OutputFormat::json ? plan_json(run, model, options)
                                                                      : plan_page(run, model, options);
  put_out(text, options.log.out);
  if (!run.outcome.plan) throw_does_not_fit(run);
  return 0;
}

}  // namespace spillway
