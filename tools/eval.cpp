#include "tools/command_opening.h"
#include "tools/commands.h"
#include "trainer/keep/evaluations.h"
#include "trainer/run/evaluation.h"

namespace spillway {

int eval_command(int argc, const char* const* argv) {
  CommandLine command(
      "spillway eval",
      "Mean loss and perplexity of a model (--model) or of a run's checkpoint (--load) on --data, with the weights alone in "
      "memory or on NVMe.");
  std::string step;
  command.add("--step", step, "N|best", "of --load: the checkpoint to take (default: the newest); best: of the lowest eval_loss");
  auto resolved = resolve_run_flags(command, argc, argv,
                                    {.only = {"model",
                                              "adapter",
                                              "seed",
                                              "init",
                                              "load",
                                              "data",
                                              "eval-data",
                                              "tokenizer",
                                              "data-format",
                                              "truncate",
                                              "packing",
                                              "split-rows",
                                              "skip-bad-lines",
                                              "train-on",
                                              "text-ends",
                                              "data-columns",
                                              "eval-split",
                                              "threads",
                                              "micro-batch-size",
                                              "seq-length",
                                              "dtype",
                                              "device",
                                              "device-memory",
                                              "host-memory",
                                              "nvme",
                                              "format",
                                              "out"},
                                     .formats = {"table", "json"}});
  if (!resolved) return 0;
  use_one_rank(resolved->options);
  settle_device_of(*resolved);
  const LogOptions& log = resolved->options.log;
  const EvaluationResult result = evaluate(*resolved, step_asked(step, resolved->options.checkpoint.load));
  const std::string text = log.format == OutputFormat::json ? evaluation_json(result) : evaluation_text(result);
  put_out(text, log.out);
  return 0;
}

}  // namespace spillway
