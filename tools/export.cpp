#include <fmt/core.h>

#include "memory/base/error.h"
#include "models/catalogue/catalogue.h"
#include "tools/command_opening.h"
#include "tools/commands.h"
#include "tools/standard_output.h"
#include "trainer/keep/evaluations.h"
#include "trainer/keep/export.h"
#include "trainer/options/flag_choices.h"

namespace spillway {

int export_command(int argc, const char* const* argv) {
  CommandLine command("spillway export",
                      "Write the weights of a run as a Hugging Face directory: safetensors, config.json, tokenizer files. "
                      "Of a run with adapters: the adapter, as PEFT saves it.");
  ExportOptions options;
  std::string dtype, shard, step;
  command.add("--load", options.run, "DIR", "the run directory");
  command.add("--out", options.out, "DIR", "the directory to make; it must not exist yet, or be empty");
  command.add("--step", step, "N|best", "the checkpoint to take (default: the newest); best: of the lowest eval_loss");
  command.add("--dtype", dtype, names_of<DType>("|"),
              "fp32: the master weights; bf16, fp16: the weights that such a run computes with (default: as the run)");
  command.add_switch("--merge", options.merge, "of a run with adapters: the whole model, with its adapter added to its weights");
  command.add("--max-shard-size", shard, "SIZE", "of one file, unless a tensor is larger (5GB)");
  command.add("--model", options.model, "PATH|NAME", "where config.json and the tokenizer are now (default: as in run.json)");
  if (help_was_asked(command, argc, argv)) return 0;
  if (options.run.empty()) {
    throw InputError("--load: not given", names_catalogue_model(options.model)
                                              ? fmt::format("{} is a name of the catalogue, a shape without weights: there is "
                                                            "nothing to export but a run's, by --load DIR.",
                                                            options.model)
                                              : "allowed: a run directory, as train --save makes it");
  }
  options.step = step_asked(step, options.run);
  if (!dtype.empty()) {
    options.dtype = value_of<DType>(dtype);
    if (!options.dtype) throw InputError(fmt::format("--dtype: found {}, allowed: {}", dtype, names_of<DType>(", ")));
  }
  if (!shard.empty()) options.shard_bytes = parse_shard_size(shard);
  const ExportResult result = export_run(options);
  say("exported step {} of {} to {}: {}{} parameters in {}\n", result.step, options.run, options.out,
      result.is_adapter ? "its adapter, " : "", result.parameters, name_of(result.dtype));
  return 0;
}

}  // namespace spillway
