#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "memory/error.h"
#include "models/posix_file.h"
#include "tools/commands.h"
#include "trainer/evaluation.h"
#include "trainer/options.h"

namespace spillway {

int eval_command(int argc, const char* const* argv) {
  CLI::App app("Mean loss and perplexity of a model (--model) or of a run's checkpoint (--load) on --data, with the weights alone in memory or on NVMe.",
               "spillway eval");
  RawFlags flags;
  std::optional<std::int64_t> step;
  app.add_option("--step", step, "of --load: the checkpoint to take (default: the newest)")->type_name("N");
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
  const LogOptions& log = resolved.options.log;
  if (log.format == OutputFormat::html) throw InputError("--format: found html, allowed: table, json");
  const EvaluationResult result = evaluate(resolved, step);
  const std::string text = log.format == OutputFormat::json ? evaluation_json(result) : evaluation_text(result);
  if (log.out.empty()) {
    fmt::print("{}", text);
  } else {
    write_text_file(log.out, text);
  }
  return 0;
}

}  // namespace spillway
