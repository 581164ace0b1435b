#include <fmt/ranges.h>

#include <filesystem>

#include "memory/base/error.h"
#include "tools/command_opening.h"
#include "tools/commands.h"
#include "tools/standard_output.h"
#include "trainer/keep/checkpoint.h"
#include "trainer/keep/durable_store.h"
#include "trainer/keep/run_directory.h"
#include "trainer/keep/state_sums.h"
#include "trainer/options/help_text.h"
#include "trainer/run/verify.h"
#include "trainer/words/quantity.h"

namespace spillway {

namespace {

// The state in these directories, given in the store's own order, or of the run if the only one is a run directory.
DurableState state_in(const std::vector<std::string>& given) {
  if (given.size() == 1) {
    if (const auto of_run = durable_state_of(given.front())) return *of_run;
  }
  return durable_state_in(given);
}

// Checks the checkpoints of a run that has ended and has nothing on NVMe.
int scrub_checkpoints(const std::string& run, const std::vector<std::int64_t>& steps) {
  for (const std::int64_t step : steps) {
    const Bytes bytes = check_state_file(checkpoint_state_file(checkpoint_path(run, step)));
    say("checkpoint of step {}: {} bytes: all as written\n", step, bytes);
  }
  return 0;
}

int scrub_store(const std::vector<std::string>& given) {
  for (const std::string& directory : given) {
    std::error_code error;
    if (std::filesystem::is_directory(directory, error)) continue;
    throw InputError(fmt::format("--store {}: {}", directory, error ? error.message() : "not a directory"),
                     "Give a run directory, or the --nvme directories of a run.");
  }
  if (given.size() == 1 && !read_store_link(given.front())) {
    if (const auto steps = checkpoint_steps(given.front()); !steps.empty()) return scrub_checkpoints(given.front(), steps);
  }
  const DurableState state = state_in(given);
  const ScrubResult result = scrub(state, [](const std::string& line) { say("{}\n", line); });
  if (result.damaged > 0) {
    throw IoError(fmt::format("{} of {} extents of step {} are damaged; the first is {}", result.damaged, result.extents,
                              result.step, result.first_damage),
                  "Go on from a checkpoint of the run: remove the run's store.json, then --load.");
  }
  say("step {}: {}, {}, {} bytes: all as written\n", result.step, counted(std::ssize(state.ranks.front().record.arrays), "array"),
      counted(result.extents, "extent"), result.bytes);
  return 0;
}

}  // namespace

int verify_command(int argc, const char* const* argv) {
  CommandLine command(
      "spillway verify",
      "Run a few steps under the given plan and again in core (or, where that cannot fit, under another plan), and compare "
      "losses, gradient norms and the final state bit for bit. Exit code 5: they differ. With --store, read all state that a run "
      "keeps on NVMe, or the "
      "checkpoints of one that has ended, and compare it with its checksums instead. Exit code 4: it is damaged.");
  std::int64_t steps = 3;
  std::vector<std::string> stores;
  command.add_number("--steps", steps, "N", "steps to run under each plan (3)");
  command.add_list("--store", stores, "DIR",
                   "a run directory, or the --nvme directories of a run: scrub its state, train nothing");
  command.add_footer(words_of_plans());
  auto resolved = resolve_run_flags(command, argc, argv, {.formats = {"table", "json"}});
  if (!resolved) return 0;
  if (!stores.empty()) return scrub_store(stores);
  if (steps < 1 || steps > 1'000'000) throw InputError(fmt::format("--steps: found {}, allowed: 1 to 1000000", steps));
  settle_device_of(*resolved);
  const LogOptions& log = resolved->options.log;
  const bool json = log.format == OutputFormat::json;
  const VerifyResult result = verify(resolved->options, steps, [json](std::string_view line) {
    if (!json) say("{}\n", line);
  });
  if (!json) say("the plans differ in {}\n{}\n", fmt::join(result.plans_differ, "; "), result.verdict);
  if (json || !log.out.empty()) put_out(verify_json(result), log.out);
  return result.equal() ? 0 : kExitDifferent;
}

}  // namespace spillway
