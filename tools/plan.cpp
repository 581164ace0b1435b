#include <fmt/core.h>

#include "offload/device.h"
#include "tools/command_opening.h"
#include "tools/commands.h"
#include "trainer/machine/profile_file.h"
#include "trainer/options/command_line.h"
#include "trainer/options/help_text.h"
#include "trainer/options/validate_options.h"
#include "trainer/plan/budgets.h"
#include "trainer/plan/checkpoint_room.h"
#include "trainer/plan/plan_file.h"
#include "trainer/plan/plan_lifts.h"
#include "trainer/plan/planned_data.h"
#include "trainer/plan/prepared_run.h"
#include "trainer/show/plan_page.h"
#include "trainer/show/plan_report.h"
#include "trainer/show/plan_sweep.h"

namespace spillway {
namespace {

// Returns true if the plan is for this machine's device: without --profile, or for a GPU here with a profile in a file that
// describes it. False for a known machine's name.
bool is_planned_here(const RunOptions& options) {
  const MemoryOptions& memory = options.memory;
  if (memory.profile.empty()) return true;
  return !names_known_machine(memory.profile) && memory.device == DeviceChoice::cuda && !find_gpus().usable.empty();
}

}  // namespace

int plan_command(int argc, const char* const* argv) {
  CommandLine command("spillway plan", "Say before anything runs where every byte will live, how long a step will take and why.");
  command.add_footer(words_of_plans());
  std::string swept;
  command.add("--sweep", swept, "FLAG=V,V,...",
              "what the plan costs as one flag grows: a table and a picture; FLAG is ranks, device-memory, seq-length or "
              "global-batch-size, and each value is planned in place of the flag's own");
  RawFlags typed;
  auto resolved = resolve_run_flags(command, argc, argv, {.formats = {"table", "json", "html"}, .typed = &typed});
  if (!resolved) return 0;
  const LogSink say = [](std::string_view note) { fmt::print(stderr, "note: {}\n", note); };
  if (command.was_given("--sweep")) {
    const PlanSweep sweep = plan_sweep(parse_sweep(swept), typed, say);
    put_out(sweep_text(sweep, resolved->options.log.format), resolved->options.log.out);
    require_any_fit(sweep);
    return 0;
  }
  if (is_planned_here(resolved->options)) settle_device_of(*resolved);
  RunOptions& options = resolved->options;
  require_model(options);
  data_before_plan(options);
  const PreparedModel model(options, Where::anywhere);
  PlannedRun run = plan_run(options, model, Where::anywhere, say);
  run.lifts = lifts_of(run, model, options);
  const std::string text = options.log.format == OutputFormat::table  ? plan_table(run, model, options)
                           : options.log.format == OutputFormat::json ? plan_json(run, model, options)
                                                                      : plan_page(run, model, options);
  put_out(text, options.log.out);
  if (!run.outcome.plan) throw_does_not_fit(run);
  // Another machine's disk cannot be checked, and the progress of a loaded run is not known here.
  if (!is_elsewhere(options, run.machine) && options.checkpoint.load.empty())
    require_room_for_checkpoints(run, model, options, 0);
  return 0;
}

}  // namespace spillway
