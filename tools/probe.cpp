#include <CLI/CLI.hpp>

#include "tools/command_opening.h"
#include "tools/commands.h"
#include "tools/output_format.h"
#include "trainer/host/host.h"
#include "trainer/machine/probe.h"
#include "trainer/machine/profile_file.h"
#include "trainer/options/command_line.h"
#include "trainer/options/resolve_options.h"

namespace spillway {

int probe_command(int argc, const char* const* argv) {
  CLI::App app("Measure this machine: what plan and train plan for. The profile is kept for them.", "spillway probe");
  std::vector<std::string> nvme;
  std::optional<std::string> format;
  std::string out;
  bool thorough = false;
  app.add_option("--nvme", nvme, "a directory to measure, as of train (repeatable)")->type_name("DIR[=SIZE]");
  app.add_flag("--thorough", thorough, "more and longer samples: about five minutes");
  app.add_option("--format", format, "of what is written (as the ending of --out says, else table)")->type_name("table|json");
  app.add_option("--out", out, "write it to a file rather than print it")->type_name("FILE");
  if (help_was_asked(app, argc, argv)) return 0;
  constexpr std::string_view kFormats[] = {"table", "json"};
  const std::string_view written = format_of_output(format, out, kFormats);
  RawFlags flags;
  if (!nvme.empty()) flags.given["nvme"] = nvme;
  const std::vector<NvmeDirectory> directories = resolve_options(flags).options.memory.nvme;
  const ThreadPool pool(usable_threads());
  const ProbeResult result = probe(pool, directories, thorough ? ProbeEffort::thorough : ProbeEffort::quick);
  if (const auto cache = profile_cache(pool.threads(), directories)) keep_profile(*cache, result.profile);
  const std::string text = written == "json" ? probe_json(result) : probe_table(result);
  put_out(text, out);
  return 0;
}

}  // namespace spillway
