#include "trainer/options/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "files/json_place.h"
#include "memory/error.h"
#include "trainer/options/flag_table.h"
#include "trainer/options/help_text.h"
#include "trainer/options/options.h"
#include "trainer/options/unknown_flag.h"
#include "trainer/words/nearest_name.h"

namespace spillway {
namespace {

std::string help_of(const Flag& flag) {
  static const RunOptions defaults;
  const nlohmann::json value = flag.get(defaults);
  std::string text = flag.help;
  if (value.is_null() || flag.kind == FlagKind::boolean) return text;
  return fmt::format("{}{}({})", text, text.empty() ? "" : " ", plain_text(value));
}

// Collects each occurrence, so that a flag given twice is refused with our message and not resolved by a policy.
CLI::Option* add_collected(CLI::App& app, const std::string& name, RawFlags& flags, const std::string& help) {
  CLI::Option* option = app.add_option_function<std::vector<std::string>>(
      "--" + name, [&flags, name](const std::vector<std::string>& texts) { flags.given[name] = texts; }, help);
  return option->type_size(1)->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->allow_extra_args(false);
}

void add_run_flag(CLI::App& app, const Flag& flag, RawFlags& flags) {
  CLI::Option* option = nullptr;
  if (flag.kind == FlagKind::boolean) {
    option = app.add_flag_callback(
        "--" + flag.name, [&flags, name = flag.name] { flags.given[name] = {"true"}; }, help_of(flag));
  } else {
    option = add_collected(app, flag.name, flags, help_of(flag))->type_name(flag.value);
    if (flag.kind == FlagKind::list) option->allow_extra_args(true);
  }
  option->group(flag.group);
}

const CLI::App& selected(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? app : selected(*chosen.back());
}

std::vector<std::string> flags_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  return names;
}

[[noreturn]] void refuse_flag(const std::string& said, const CLI::App& command, const std::string& help) {
  const std::string name = said.starts_with("--") ? said.substr(2) : said;
  if (said.starts_with("--") && find_flag(name) != nullptr)
    throw InputError(fmt::format("found {}, which {} does not use", said, command.get_name()), help);
  const std::vector<std::string> known = flags_of(command);
  throw refusal_of({.name = name, .said = "unknown flag " + said, .known = known, .help = help});
}

[[noreturn]] void refuse_extras(const CLI::App& app) {
  const CLI::App& command = selected(app);
  const std::vector<std::string> extras = app.remaining(true);
  const std::string& name_of_command = command.get_name();
  const std::string help = fmt::format("{}{} --help lists what is allowed",
                                       name_of_command.starts_with("spillway") ? ""
                                       : name_of_command.empty()               ? "spillway"
                                                                               : "spillway ",
                                       name_of_command);
  if (extras.empty()) throw InputError("an argument was not expected", help);
  for (const std::string& extra : extras) {
    if (extra.size() > 1 && extra.starts_with('-')) refuse_flag(extra.substr(0, extra.find('=')), command, help);
  }
  if (&command == &app) {  // no subcommand was recognised
    std::vector<std::string> known;
    for (const CLI::App* subcommand : app.get_subcommands([](const CLI::App*) { return true; }))
      known.push_back(subcommand->get_name());
    const std::string nearest = nearest_name(extras[0], known);
    throw InputError(fmt::format("found unknown command {}", extras[0]),
                     nearest.empty() ? help : fmt::format("did you mean {}?", nearest));
  }
  throw InputError(fmt::format("found argument \"{}\", which no flag takes", extras[0]), help);
}

std::string first_line(std::string text) { return text.substr(0, text.find('\n')); }

}  // namespace

void add_run_flags(CLI::App& app, RawFlags& flags, std::span<const std::string_view> names) {
  for (const std::string_view name : names) {
    const Flag* flag = find_flag(name);
    SPILLWAY_CHECK(flag != nullptr, "no run flag --{}", name);
    add_run_flag(app, *flag, flags);
  }
}

void add_run_flags(CLI::App& app, RawFlags& flags) {
  for (const Flag& flag : flag_table()) add_run_flag(app, flag, flags);
  add_config_flags(app, flags);
}

void add_config_flags(CLI::App& app, RawFlags& flags) {
  add_collected(app, "config", flags, "read options from a JSON file with keys of the flags' names; a flag wins")
      ->type_name("FILE")
      ->group("Configuration");
  app.add_flag_callback(
         "--print-config", [&flags] { flags.print_config = true; },
         "print every option, its value and where it came from, and exit")
      ->group("Configuration");
}

std::optional<std::string> parse_command_line(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForAllHelp&) {
    return help_text(selected(app));
  } catch (const CLI::CallForHelp&) {
    return help_text(selected(app));
  } catch (const CLI::CallForVersion& version) {
    return std::string(version.what()) + "\n";
  } catch (const CLI::ExtrasError&) {
    refuse_extras(app);
  } catch (const CLI::ParseError& error) {
    if (!app.remaining(true).empty()) refuse_extras(app);  // "a subcommand is required" says less than the word that is none
    throw InputError(first_line(error.what()), "spillway --help, or spillway COMMAND --help, lists what is allowed");
  }
  return std::nullopt;
}

}  // namespace spillway
