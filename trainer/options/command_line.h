// The command line of one command: flags are declared, each with the variable that it fills, then parsed; --help is made of
// what was declared. CLI11 does the parsing, and is seen by command_line.cpp alone.
// Not here: what run flags mean (flag_table.h), what becomes of what was typed (resolve_options.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/options/raw_flags.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace spillway {

struct Flag;

// Every variable that is named here must outlive parse, which writes those whose flags are given, and no other.
class CommandLine {
 public:
  CommandLine(const std::string& name, const std::string& description);  // "spillway plan"
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // A flag with a value, which the help calls `value`; "--load,directory": the value may stand alone, too.
  void add(const std::string& names, std::string& variable, const std::string& value, const std::string& help);
  void add(const std::string& names, std::optional<std::string>& variable, const std::string& value, const std::string& help);
  // T: std::int64_t, double, or an optional of these.
  template <typename T>
  void add_number(const std::string& name, T& variable, const std::string& value, const std::string& help);
  // A list takes every word up to the next flag, and may be given again.
  void add_list(const std::string& names, std::vector<std::string>& variable, const std::string& value, const std::string& help);
  // As a list, with one word each time that it is given.
  void add_repeated(const std::string& names, std::vector<std::string>& variable, const std::string& value,
                    const std::string& help);
  // A flag without a value.
  void add_switch(const std::string& names, bool& variable, const std::string& help);

  // All run flags with --config and --print-config, or those of `names` alone.
  void add_run_flags(RawFlags& flags);
  void add_run_flags(RawFlags& flags, std::span<const std::string_view> names);
  void add_config_flags(RawFlags& flags);

  // What the help says of a flag that was declared.
  void describe(const std::string& name, const std::string& value, const std::string& help);
  void add_footer(const std::string& text);   // at the end of the help
  void add_version(const std::string& text);  // what --version prints

  // argv[0] is the command's own name. Every complaint is an InputError (unknown flags with the nearest known one). What was
  // asked for by --help or --version is the text that it returns, to print and exit 0; otherwise nothing.
  std::optional<std::string> parse(int argc, const char* const* argv);
  bool was_given(const std::string& name) const;  // "--sweep"

 private:
  CLI::Option& add_collected(const std::string& name, RawFlags& flags, const std::string& help);
  void add_run_flag(const Flag& flag, RawFlags& flags);

  std::unique_ptr<CLI::App> app_;
};

}  // namespace spillway
