// The command `spillway`: finds the subcommand, and turns any failure into one error line and an exit code.
#include <fmt/core.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>

#include "memory/base/error.h"
#include "models/instruction_limit.h"
#include "tools/commands.h"
#include "tools/standard_output.h"
#include "tools/version.h"
#include "trainer/host/host.h"

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
  // An interruption that the user asked for is no error.
  std::string text = fmt::format("{}{}\n", exit_code == kExitInterrupted ? "" : "error: ", message);
  if (!help.empty()) text += fmt::format("{}\n", help);
  std::fputs(text.c_str(), stderr);  // if even this cannot be written, the exit code must suffice
  return exit_code;
}

// Libraries report what the system refuses in words of their own.
bool is_short_of_something(std::string_view message) {
  for (const std::string_view words : {"Resource temporarily unavailable", "Cannot allocate memory", "out of memory",
                                       "out_of_memory", "could not create a memory", "pthread_create"}) {
    if (message.find(words) != message.npos) return true;
  }
  return false;
}

int fail_for_limits(std::string_view message) {
  const std::string limits = limits_in_words();
  return fail(kExitBudget,
              fmt::format("the system refuses what the run needs beside the plan: {}{}", message,
                          limits.empty() ? "" : fmt::format(" (limits: {})", limits)),
              "Raise the limit: pids.max of the control group, `ulimit -u` (threads), `ulimit -v` (memory); or use fewer "
              "--threads.");
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  spillway::open_standard_streams();
  // A reader of our output that goes away must not cost a step: writes then fail with EPIPE and are dropped.
  std::signal(SIGPIPE, SIG_IGN);
  // A file that may not grow further (`ulimit -f`) becomes an error of the write, which says so.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    spillway::limit_instructions_as_asked();
    return spillway::dispatch(argc, argv);
  } catch (const spillway::Error& error) {
    if (error.exit_code() == spillway::kExitBug && spillway::is_short_of_something(error.what()))
      return spillway::fail_for_limits(error.what());
    return spillway::fail(error.exit_code(), error.what(), error.help());
  } catch (const std::bad_alloc&) {
    const std::string limits = spillway::limits_in_words();
    return spillway::fail(
        spillway::kExitBudget,
        "the process is out of memory outside the plan" + (limits.empty() ? std::string() : fmt::format(" (limits: {})", limits)),
        "Give it at least 150 MiB beside --device-memory.");
  } catch (const std::system_error& error) {
    // The system refused a thread, a lock or a pipe.
    return spillway::fail_for_limits(error.what());
  } catch (const std::exception& error) {
    if (spillway::is_short_of_something(error.what())) return spillway::fail_for_limits(error.what());
    return spillway::fail(spillway::kExitBug, fmt::format("unexpected: {}", error.what()),
                          "This is a bug in spillway; please report it with the command line.");
  }
}
