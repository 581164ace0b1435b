#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "memory/error.h"
#include "models/catalogue/catalogue.h"
#include "tools/command_opening.h"
#include "tools/commands.h"
#include "tools/standard_output.h"
#include "trainer/keep/export.h"

namespace spillway {

int export_command(int argc, const char* const* argv) {
  CLI::App app("Write the weights of a run as a Hugging Face directory: safetensors, config.json, tokenizer files.",
               "spillway export");
  ExportOptions options;
  std::string dtype, shard;
  app.add_option("--load", options.run, "the run directory")->type_name("DIR");
  app.add_option("--out", options.out, "the directory to make; it must not exist yet, or be empty")->type_name("DIR");
  app.add_option("--step", options.step, "the checkpoint to take (default: the newest)")->type_name("N");
  app.add_option("--dtype", dtype,
                 "fp32: the master weights; bf16: the weights that a bf16 run computes with (default: as the run)")
      ->type_name("bf16|fp32");
  app.add_option("--max-shard-size", shard, "of one file, unless a tensor is larger (5GB)")->type_name("SIZE");
  app.add_option("--model", options.model, "where config.json and the tokenizer are now (default: as in run.json)")
      ->type_name("PATH|NAME");
  if (help_was_asked(app, argc, argv)) return 0;
  if (options.run.empty()) {
    throw InputError("--load: not given", names_catalogue_model(options.model)
                                              ? fmt::format("{} is a name of the catalogue, a shape without weights: there is "
                                                            "nothing to export but a run's, by --load DIR.",
                                                            options.model)
                                              : "allowed: a run directory, as train --save makes it");
  }
  if (!dtype.empty()) {
    if (dtype != "bf16" && dtype != "fp32") throw InputError(fmt::format("--dtype: found {}, allowed: bf16, fp32", dtype));
    options.dtype = dtype == "fp32" ? DType::float32 : DType::bfloat16;
  }
  if (!shard.empty()) options.shard_bytes = parse_shard_size(shard);
  const ExportResult result = export_run(options);
  say("exported step {} of {} to {}: {} parameters in {}\n", result.step, options.run, options.out, result.parameters,
             name_of(result.dtype));
  return 0;
}

}  // namespace spillway
