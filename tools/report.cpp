#include <fmt/core.h>

#include "files/posix_file.h"
#include "memory/base/error.h"
#include "tools/command_opening.h"
#include "tools/commands.h"
#include "tools/output_format.h"
#include "tools/standard_output.h"
#include "trainer/show/run_record.h"
#include "trainer/show/run_report.h"
#include "trainer/show/trace_file.h"

namespace spillway {

int report_command(int argc, const char* const* argv) {
  CommandLine command("spillway report",
                      "A run beside its plan, as one page: loss, throughput, both timelines, what cost more than planned.");
  std::vector<std::string> directories;
  std::string out, trace;
  command.add_list("--load,directory", directories, "DIR", "the run directory, what train was given by --save");
  command.add("--out", out, "FILE", "the page (report.html in DIR)");
  command.add("--trace", trace, "FILE", "also the timelines as a trace that Perfetto and chrome://tracing open");
  if (help_was_asked(command, argc, argv)) return 0;
  if (directories.size() != 1) {
    throw InputError(directories.empty() ? "no run directory is given"
                                         : fmt::format("found {} run directories, allowed: one", directories.size()),
                     "spillway report --load DIR, with the DIR that spillway train was given by --save");
  }
  const std::string& directory = directories.front();
  constexpr std::string_view kFormats[] = {"html"};
  format_of_output(std::nullopt, out, kFormats);
  if (out.empty()) out = directory + "/report.html";
  const RunRecord run = read_run(directory);
  if (!trace.empty() && !run.timed_step) {
    throw InputError(fmt::format("{}/timeline.json: there is none: the run has not saved a timeline yet", directory),
                     "A run saves it with each checkpoint; see --save-interval.");
  }
  write_text_file(out, report_page(run));
  put(report_summary(run));
  say("page   {}\n", out);
  if (trace.empty()) return 0;
  write_text_file(trace, trace_text(run));
  say("trace  {}\n", trace);
  return 0;
}

}  // namespace spillway
