#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>

#include "memory/error.h"
#include "tools/command_opening.h"
#include "tools/commands.h"
#include "trainer/verify.h"

namespace spillway {

int verify_command(int argc, const char* const* argv) {
  CLI::App app(
      "Run a few steps under the given plan and again in core (or, where that cannot fit, under another plan), and compare "
      "losses, gradient norms and "
      "the final state bit for bit. Exit code 5: they differ.",
      "spillway verify");
  std::int64_t steps = 3;
  app.add_option("--steps", steps, "steps to run under each plan (3)")->type_name("N");
  const auto resolved = resolve_run_flags(app, argc, argv);
  if (!resolved) return 0;
  if (steps < 1 || steps > 1'000'000) throw InputError(fmt::format("--steps: found {}, allowed: 1 to 1000000", steps));
  const LogOptions& log = resolved->options.log;
  if (log.format == OutputFormat::html) throw InputError("--format: found html, allowed: table, json");
  const bool json = log.format == OutputFormat::json;
  const VerifyResult result = verify(resolved->options, steps, [json](std::string_view line) {
    if (!json) fmt::print("{}\n", line);
  });
  if (!json) fmt::print("the plans differ in {}\n{}\n", fmt::join(result.plans_differ, "; "), result.verdict);
  if (json || !log.out.empty()) put_out(verify_json(result), log.out);
  return result.equal() ? 0 : kExitDifferent;
}

}  // namespace spillway
