#include "trainer/machine/probe.h"
#include "tools/command_opening.h"
#include "tools/commands.h"
#include "tools/output_format.h"
#include "trainer/host/host.h"
#include "trainer/machine/profile_file.h"
#include "trainer/options/command_line.h"
#include "trainer/options/resolve_options.h"

namespace spillway {

int probe_command(int argc, const char* const* argv) {
  CommandLine command("spillway probe", "Measure this machine: what plan and train plan for. The profile is kept for them.");
  std::vector<std::string> nvme;
  std::optional<std::string> format;
  std::string out;
  bool thorough = false;
  std::optional<std::string> device;
  command.add("--device", device, "cpu|cuda[:N]", "what to measure (default: the GPU where there is one, else the CPU)");
  command.add_list("--nvme", nvme, "DIR[=SIZE]", "a directory to measure, as of train (repeatable)");
  command.add_switch("--thorough", thorough, "more and longer samples: about five minutes");
  command.add("--format", format, "table|json", "of what is written (as the ending of --out says, else table)");
  command.add("--out", out, "FILE", "write it to a file rather than print it");
  if (help_was_asked(command, argc, argv)) return 0;
  constexpr std::string_view kFormats[] = {"table", "json"};
  const std::string_view written = format_of_output(format, out, kFormats);
  RawFlags flags;
  if (!nvme.empty()) flags.given["nvme"] = nvme;
  if (device) flags.given["device"] = {*device};
  ResolvedOptions resolved = resolve_options(flags);
  settle_device_of(resolved);
  const RunOptions& options = resolved.options;
  const std::vector<NvmeDirectory>& directories = options.memory.nvme;
  const ThreadPool pool(usable_threads());
  const ProbeEffort effort = thorough ? ProbeEffort::thorough : ProbeEffort::quick;
  const ProbeResult result = options.gpu ? probe_gpu(options, pool, effort) : probe(pool, directories, effort);
  if (const auto cache = profile_cache(pool.threads(), directories, options.gpu)) keep_profile(*cache, result.profile);
  std::string text = written == "json" ? probe_json(result) : probe_table(result);
  if (written != "json" && !options.gpu) {
    for (const char* model : {"smollm2-360m", "llama-3.2-1b"}) text += products_in_words(model, 512);
  }
  put_out(text, out);
  return 0;
}

}  // namespace spillway
