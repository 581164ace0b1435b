#include "tools/command_opening.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "files/posix_file.h"
#include "memory/base/error.h"
#include "tools/output_format.h"
#include "tools/standard_output.h"
#include "tools/version.h"
#include "trainer/machine/open_device.h"
#include "trainer/options/command_line.h"
#include "trainer/options/flag_choices.h"
#include "trainer/options/flag_table.h"
#include "trainer/options/launched.h"
#include "trainer/options/resolve_options.h"

namespace spillway {
namespace {

std::vector<std::string_view> names_of(const RunFlagUse& use) {
  std::vector<std::string_view> names = use.only;
  if (!names.empty()) return names;
  for (const Flag& flag : flag_table()) {
    if (flag.name != "out" || !use.formats.empty()) names.push_back(flag.name);
  }
  return names;
}

void describe_format(CommandLine& command, const std::vector<std::string_view>& formats) {
  if (formats.empty()) {
    command.describe("--format", "table|json", "of --print-config (table)");
  } else {
    command.describe(
        "--format", fmt::format("{}", fmt::join(formats, "|")),
        fmt::format("of what is written (as the ending of --out says, else {}), and of --print-config", formats.front()));
  }
}

OptionSource source_of(const ResolvedOptions& resolved, const std::string& flag) {
  const auto source = resolved.sources.find(flag);
  return source == resolved.sources.end() ? OptionSource::by_default : source->second;
}

void put_note(std::string_view note) { fmt::print(stderr, "note: {}\n", note); }

void set_format(ResolvedOptions& resolved, const std::vector<std::string_view>& formats) {
  if (formats.empty()) {
    if (source_of(resolved, "format") == OptionSource::flag)
      throw InputError("--format: found without --print-config, allowed: together with it",
                       "spillway plan --format json|html shows the plan.");
    return;
  }
  // A loaded run's output format says nothing about this command's result.
  const OptionSource source = source_of(resolved, "format");
  const Flag& flag = *find_flag("format");
  std::optional<std::string> asked;
  if (source == OptionSource::flag || source == OptionSource::config_file) asked = name_of(resolved.options.log.format);
  flag.set(resolved.options, FlagValue("--format", {std::string(format_of_output(asked, resolved.options.log.out, formats))}));
}

}  // namespace

bool help_was_asked(CommandLine& command, int argc, const char* const* argv) {
  command.add_version(std::string(kVersion));
  const std::optional<std::string> help = command.parse(argc, argv);
  if (help) put(*help);
  return help.has_value();
}

std::optional<ResolvedOptions> resolve_run_flags(CommandLine& command, int argc, const char* const* argv, const RunFlagUse& use) {
  RawFlags own;
  RawFlags& flags = use.typed == nullptr ? own : *use.typed;
  command.add_run_flags(flags, names_of(use));
  command.add_config_flags(flags);
  describe_format(command, use.formats);
  if (help_was_asked(command, argc, argv)) return std::nullopt;
  if (use.launch) take_ranks_of(*use.launch, flags);
  ResolvedOptions resolved = resolve_options(flags);
  if (use.launch) take_launch(*use.launch, resolved.options);
  if (!use.launch || use.launch->rank == 0) std::ranges::for_each(resolved.notes, put_note);
  if (flags.print_config) {
    put(print_config(resolved));
    return std::nullopt;
  }
  set_format(resolved, use.formats);
  return resolved;
}

void settle_device_of(ResolvedOptions& resolved) { settle_device(resolved, put_note); }

void put_out(const std::string& text, const std::string& out) {
  if (out.empty()) {
    put(text);
  } else {
    write_text_file(out, text);
  }
}

}  // namespace spillway
