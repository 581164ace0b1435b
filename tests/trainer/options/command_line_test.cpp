// Flags as they are typed. Not here: the meaning of options (options_test.cpp).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "memory/base/error.h"
#include "tests/trainer/options/parsed_options.h"
#include "tests/trainer/temporary_directory.h"
#include "trainer/options/command_line.h"
#include "trainer/options/flag_table.h"
#include "trainer/options/resolve_options.h"

namespace spillway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(CommandLine, TheCommandLineItself) {
  EXPECT_REFUSED(options_of({"--lr", "1", "--lr", "2"}), InputError, "--lr: found 2 values");
  EXPECT_REFUSED(options_of({"--micro-batchsize", "2"}), InputError, "found unknown flag --micro-batchsize");
  EXPECT_REFUSED(options_of({"--micro-batchsize=2"}), InputError, "found unknown flag --micro-batchsize");
  EXPECT_REFUSED(options_of({"-7"}), InputError, "found unknown flag -7");
  EXPECT_REFUSED(options_of({"stray"}), InputError, "stray");
  EXPECT_REFUSED(options_of({"--lr"}), InputError, "--lr");
  try {
    options_of({"--micro-batchsize", "2"});
  } catch (const InputError& error) {
    EXPECT_EQ(error.help(), "did you mean --micro-batch-size?");
  }
  EXPECT_REFUSED(options_of({"--data", "\xff\xfe.txt"}), InputError, "UTF-8");
}

TEST(CommandLine, FillsTheVariablesWhoseFlagsAreGiven) {
  CommandLine command("spillway report", "shows");
  std::string out = "as before";
  std::optional<std::int64_t> step;
  double top_p = 1;
  std::vector<std::string> directories, prompts;
  bool thorough = false;
  command.add("--out", out, "FILE", "");
  command.add_number("--step", step, "N", "of the run");
  command.add_number("--top-p", top_p, "P", "");
  command.add_list("--load,directory", directories, "DIR", "the run");
  command.add_repeated("--prompt", prompts, "TEXT", "");
  command.add_switch("--thorough", thorough, "");
  const char* arguments[] = {"report", "--prompt", "a", "here", "--prompt", "b", "--step", "7", "--top-p=0.5", "--thorough"};
  EXPECT_FALSE(command.parse(std::size(arguments), arguments));
  EXPECT_EQ(out, "as before");
  EXPECT_EQ(step, 7);
  EXPECT_EQ(top_p, 0.5);
  EXPECT_TRUE(thorough);
  EXPECT_THAT(directories, ElementsAre("here"));
  EXPECT_THAT(prompts, ElementsAre("a", "b"));
  EXPECT_TRUE(command.was_given("--step"));
  EXPECT_FALSE(command.was_given("--out"));
}

TEST(CommandLine, RefusesAValueThatIsNoNumberAndASecondOne) {
  for (const char* value : {"seven", "7.5", "99999999999999999999", ""}) {
    CommandLine command("spillway eval", "evaluates");
    std::int64_t step = 0;
    command.add_number("--step", step, "N", "");
    const char* arguments[] = {"eval", "--step", value};
    EXPECT_REFUSED(command.parse(3, arguments), InputError, "--step");
  }
  CommandLine command("spillway eval", "evaluates");
  std::int64_t step = 0;
  command.add_number("--step", step, "N", "");
  const char* arguments[] = {"eval", "--step", "1", "--step", "2"};
  EXPECT_REFUSED(command.parse(5, arguments), InputError, "--step");
}

TEST(CommandLine, HelpListsEveryFlagWithItsDefault) {
  const auto help = parse({"--help"}).help;
  ASSERT_TRUE(help);
  for (const Flag& flag : flag_table()) EXPECT_THAT(*help, HasSubstr("--" + flag.name));
  EXPECT_THAT(*help, HasSubstr("(0.999)"));
  std::istringstream lines(*help);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
  EXPECT_THAT(*help, HasSubstr("Memory and planning"));
}

TEST(CommandLine, PrintConfigIsNoted) { EXPECT_TRUE(parse({"--print-config"}).flags.print_config); }

}  // namespace
}  // namespace spillway
