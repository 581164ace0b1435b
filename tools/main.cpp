// The command `spillway`: finds the subcommand and turns what goes wrong into one error line and an exit code.
#include <fmt/core.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "memory/error.h"
#include "tools/commands.h"
#include "tools/standard_output.h"
#include "tools/version.h"

namespace spillway {
namespace {

struct Command {
  std::string_view name;
  int (*run)(int argc, const char* const* argv);
  std::string_view does;
};

constexpr Command kCommands[] = {
    {"plan", plan_command, "say before anything runs where every byte will live and how long a step will take"},
    {"probe", probe_command, "measure this machine: what plan and train plan for"},
    {"train", train_command, "plan, then train"},
    {"verify", verify_command, "compare a few steps under the given plan with the same steps in core, bit for bit"},
    {"eval", eval_command, "mean loss and perplexity of a model or a run on data"},
    {"generate", generate_command, "text that a model or a run goes on with after a prompt"},
    {"export", export_command, "write the weights of a run as a Hugging Face directory"},
    {"report", report_command, "show a run beside its plan as a page: loss, throughput, planned and recorded timeline"},
    {"tokenize", tokenize_command, "text, directories and JSONL to a token file, or to ids"},
};

std::string usage() {
  std::string text = "spillway: trains language models that do not fit the machine\n\nusage: spillway COMMAND [flags]\n\n";
  for (const Command& command : kCommands) text += fmt::format("  {:<10}{}\n", command.name, command.does);
  return text + "\n`spillway COMMAND --help` lists the flags of a command; `spillway --version` says which this is.\n";
}

std::string command_names() {
  std::string names;
  for (const Command& command : kCommands) names += fmt::format("{}{}", names.empty() ? "" : ", ", command.name);
  return names;
}

int dispatch(int argc, const char* const* argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  if (name == "--help" || name == "-h" || name == "help") {
    put(usage());
    return 0;
  }
  if (name == "--version") {
    say("{}\n", kVersion);
    return 0;
  }
  for (const Command& command : kCommands) {
    if (command.name == name) return command.run(argc - 1, argv + 1);
  }
  throw InputError(name.empty() ? "no command is given" : fmt::format("there is no command '{}'", name),
                   fmt::format("The commands are {}; `spillway --help` says what they do.", command_names()));
}

int fail(int exit_code, std::string_view message, std::string_view help) {
  std::string text = fmt::format("error: {}\n", message);
  if (!help.empty()) text += fmt::format("{}\n", help);
  std::fputs(text.c_str(), stderr);  // where that cannot be written either, the exit code has to do
  return exit_code;
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  spillway::open_standard_streams();
  // A reader of our output that goes away is no reason to lose a step: writes then fail with EPIPE and are let go.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return spillway::dispatch(argc, argv);
  } catch (const spillway::Error& error) {
    return spillway::fail(error.exit_code(), error.what(), error.help());
  } catch (const std::bad_alloc&) {
    return spillway::fail(spillway::kExitBudget, "the process is out of memory outside the plan",
                          "Give it at least 150 MiB beside --device-memory.");
  } catch (const std::exception& error) {
    return spillway::fail(spillway::kExitBug, fmt::format("unexpected: {}", error.what()),
                          "This is a bug in spillway; please report it with the command line.");
  }
}
