#include "trainer/options/command_line.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "files/json_place.h"
#include "memory/base/error.h"
#include "trainer/options/flag_table.h"
#include "trainer/options/flag_value.h"
#include "trainer/options/help_text.h"
#include "trainer/options/options.h"
#include "trainer/options/unknown_flag.h"

namespace spillway {
namespace {

std::string meaning_of(const Flag& flag) {
  static const RunOptions defaults;
  const nlohmann::json value = flag.get(defaults);
  std::string text = flag.help;
  if (value.is_null() || flag.kind == FlagKind::boolean) return text;
  return fmt::format("{}{}({})", text, text.empty() ? "" : " ", plain_text(value));
}

// "--load DIR, or DIR alone", "-h, --help"
std::string typed_of(const CLI::Option& option) {
  std::string typed;
  for (const std::string& name : option.get_snames()) typed += fmt::format("{}-{}", typed.empty() ? "" : ", ", name);
  for (const std::string& name : option.get_lnames()) typed += fmt::format("{}--{}", typed.empty() ? "" : ", ", name);
  const std::string value = option.get_type_size() == 0 ? "" : option.get_type_name();
  if (!value.empty()) typed += " " + value;
  if (!option.get_positional() || value.empty()) return typed;
  return fmt::format("{}, or {} alone", typed, value);
}

CommandHelp help_of(const CLI::App& app) {
  CommandHelp help{.command = app.get_name(), .description = app.get_description(), .groups = {}, .footer = app.get_footer()};
  for (const std::string& heading : app.get_groups()) {
    HelpGroup group{.heading = heading, .flags = {}};
    for (const CLI::Option* option : app.get_options([&](const CLI::Option* one) { return one->get_group() == heading; }))
      group.flags.push_back({typed_of(*option), option->get_description()});
    if (!heading.empty() && !group.flags.empty()) help.groups.push_back(std::move(group));
  }
  return help;
}

std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  return names;
}

[[noreturn]] void refuse_flag(const std::string& said, const CLI::App& app, const std::string& help) {
  const std::string name = said.starts_with("--") ? said.substr(2) : said;
  if (said.starts_with("--") && find_flag(name) != nullptr)
    throw InputError(fmt::format("found {}, which {} does not use", said, app.get_name()), help);
  const std::vector<std::string> known = flags_of(app);
  throw refusal_of({.name = name, .said = "unknown flag " + said, .known = known, .help = help});
}

[[noreturn]] void refuse_extras(const CLI::App& app) {
  const std::vector<std::string> extras = app.remaining();
  const std::string help = fmt::format("{} --help lists what is allowed", app.get_name());
  for (const std::string& extra : extras) {
    if (extra.size() > 1 && extra.starts_with('-')) refuse_flag(extra.substr(0, extra.find('=')), app, help);
  }
  throw InputError(fmt::format("found argument \"{}\", which no flag takes", extras.at(0)), help);
}

// Numbers follow our own rules: CLI11 accepts 7.5 as a whole number and an empty word as 0.
void read_number(const FlagValue& value, std::int64_t& into) {
  using Limits = std::numeric_limits<std::int64_t>;
  into = value.integer(Limits::min(), Limits::max());
}

void read_number(const FlagValue& value, double& into) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  into = value.real(-kInfinity, FlagValue::Bound::excluded, kInfinity, FlagValue::Bound::excluded);
}

template <typename T>
void read_number(const FlagValue& value, std::optional<T>& into) {
  read_number(value, into.emplace());
}

std::string first_line(std::string text) { return text.substr(0, text.find('\n')); }

}  // namespace

CommandLine::CommandLine(const std::string& name, const std::string& description)
    : app_(std::make_unique<CLI::App>(description, name)) {}

CommandLine::~CommandLine() = default;

void CommandLine::add(const std::string& names, std::string& variable, const std::string& value, const std::string& help) {
  app_->add_option(names, variable, help)->type_name(value);
}

void CommandLine::add(const std::string& names, std::optional<std::string>& variable, const std::string& value,
                      const std::string& help) {
  app_->add_option(names, variable, help)->type_name(value);
}

template <typename T>
void CommandLine::add_number(const std::string& name, T& variable, const std::string& value, const std::string& help) {
  app_->add_option_function<std::string>(
          name, [&variable, name](const std::string& text) { read_number(FlagValue(name, {text}), variable); }, help)
      ->type_name(value);
}

template void CommandLine::add_number(const std::string&, std::int64_t&, const std::string&, const std::string&);
template void CommandLine::add_number(const std::string&, double&, const std::string&, const std::string&);
template void CommandLine::add_number(const std::string&, std::optional<std::int64_t>&, const std::string&, const std::string&);
template void CommandLine::add_number(const std::string&, std::optional<double>&, const std::string&, const std::string&);

void CommandLine::add_list(const std::string& names, std::vector<std::string>& variable, const std::string& value,
                           const std::string& help) {
  app_->add_option(names, variable, help)->type_name(value);
}

void CommandLine::add_repeated(const std::string& names, std::vector<std::string>& variable, const std::string& value,
                               const std::string& help) {
  app_->add_option(names, variable, help)->type_name(value)->take_all()->allow_extra_args(false);
}

void CommandLine::add_switch(const std::string& names, bool& variable, const std::string& help) {
  app_->add_flag(names, variable, help);
}

// Collects every occurrence, so that our own message refuses a flag given twice instead of a CLI11 policy resolving it.
CLI::Option& CommandLine::add_collected(const std::string& name, RawFlags& flags, const std::string& help) {
  CLI::Option* const option = app_->add_option_function<std::vector<std::string>>(
      "--" + name, [&flags, name](const std::vector<std::string>& texts) { flags.given[name] = texts; }, help);
  return *option->type_size(1)->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->allow_extra_args(false);
}

void CommandLine::add_run_flag(const Flag& flag, RawFlags& flags) {
  if (flag.kind == FlagKind::boolean) {
    app_->add_flag_callback(
            "--" + flag.name, [&flags, name = flag.name] { flags.given[name] = {"true"}; }, meaning_of(flag))
        ->group(flag.group);
    return;
  }
  CLI::Option& option = add_collected(flag.name, flags, meaning_of(flag));
  option.type_name(flag.value)->group(flag.group);
  if (flag.kind == FlagKind::list) option.allow_extra_args(true);
}

void CommandLine::add_run_flags(RawFlags& flags, std::span<const std::string_view> names) {
  for (const std::string_view name : names) {
    const Flag* flag = find_flag(name);
    SPILLWAY_CHECK(flag != nullptr, "no run flag --{}", name);
    add_run_flag(*flag, flags);
  }
}

void CommandLine::add_run_flags(RawFlags& flags) {
  for (const Flag& flag : flag_table()) add_run_flag(flag, flags);
  add_config_flags(flags);
}

void CommandLine::add_config_flags(RawFlags& flags) {
  add_collected(
      "config", flags,
      "read options from a JSON file, or from YAML if its name ends in .yaml or .yml, with keys of the flags' names; a flag wins")
      .type_name("FILE")
      ->group("Configuration");
  add_collected("deepspeed-config", flags,
                "read DeepSpeed's JSON: what has a meaning here takes effect, the rest is named with the reason; flags and "
                "--config fill what it leaves to \"auto\", and may not disagree with the rest")
      .type_name("FILE")
      ->group("Configuration");
  app_->add_flag_callback(
          "--print-config", [&flags] { flags.print_config = true; },
          "print every option, its value and where it came from, and exit")
      ->group("Configuration");
}

void CommandLine::describe(const std::string& name, const std::string& value, const std::string& help) {
  app_->get_option(name)->type_name(value)->description(help);
}

void CommandLine::add_footer(const std::string& text) { app_->footer(text); }

void CommandLine::add_version(const std::string& text) {
  app_->set_version_flag("--version", text, "print the version and exit");
}

std::optional<std::string> CommandLine::parse(int argc, const char* const* argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return help_text(help_of(*app_));
  } catch (const CLI::CallForVersion& version) {
    return std::string(version.what()) + "\n";
  } catch (const CLI::ExtrasError&) {
    refuse_extras(*app_);
  } catch (const CLI::ParseError& error) {
    if (!app_->remaining().empty()) refuse_extras(*app_);
    throw InputError(first_line(error.what()), "spillway --help, or spillway COMMAND --help, lists what is allowed");
  }
  return std::nullopt;
}

bool CommandLine::was_given(const std::string& name) const { return app_->count(name) > 0; }

}  // namespace spillway
