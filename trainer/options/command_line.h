// The command line of one command: flags are declared, each with the variable that it fills, then parsed. --help is made from the
// declarations. CLI11 does the parsing; only command_line.cpp sees it.
// Not here: the meaning of run flags (flag_table.h), the way from texts to options (resolve_options.h).
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

// Every variable named here must outlive parse, which writes the variables of the flags that are given and no others.
class CommandLine {
 public:
  CommandLine(const std::string& name, const std::string& description);  // "spillway plan"
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Declares a flag with a value; the help calls the value `value`. With "--load,directory" the value may also stand alone.
  void add(const std::string& names, std::string& variable, const std::string& value, const std::string& help);
  void add(const std::string& names, std::optional<std::string>& variable, const std::string& value, const std::string& help);
  // T: std::int64_t, double, or an optional of these.
  template <typename T>
  void add_number(const std::string& name, T& variable, const std::string& value, const std::string& help);
  // A list takes every word up to the next flag, and may be given again.
  void add_list(const std::string& names, std::vector<std::string>& variable, const std::string& value, const std::string& help);
  // Like a list, but takes one word each time the flag is given.
  void add_repeated(const std::string& names, std::vector<std::string>& variable, const std::string& value,
                    const std::string& help);
  // A flag without a value.
  void add_switch(const std::string& names, bool& variable, const std::string& help);

  // Declare all run flags with --config and --print-config, or only the flags in `names`.
  void add_run_flags(RawFlags& flags);
  void add_run_flags(RawFlags& flags, std::span<const std::string_view> names);
  void add_config_flags(RawFlags& flags);

  // Sets the text that the help has for a flag that was declared.
  void describe(const std::string& name, const std::string& value, const std::string& help);
  void add_footer(const std::string& text);   // at the end of the help
  void add_version(const std::string& text);  // what --version prints

  // argv[0] is the command's own name. Every complaint is an InputError (for an unknown flag with the nearest known one). For
  // --help or --version returns the text to print before exit 0; otherwise nothing.
  std::optional<std::string> parse(int argc, const char* const* argv);
  bool was_given(const std::string& name) const;  // "--sweep"

 private:
  CLI::Option& add_collected(const std::string& name, RawFlags& flags, const std::string& help);
  void add_run_flag(const Flag& flag, RawFlags& flags);

  std::unique_ptr<CLI::App> app_;
};

}  // namespace spillway
