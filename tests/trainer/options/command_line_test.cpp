// Flags and subcommands as they are typed. Not here: what options mean (options_test.cpp).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "memory/error.h"
#include "tests/trainer/options/parsed_options.h"
#include "tests/trainer/temporary_directory.h"
#include "trainer/options/command_line.h"
#include "trainer/options/flag_table.h"
#include "trainer/options/resolve_options.h"

namespace spillway {
namespace {

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

TEST(CommandLine, NoSuchCommand) {
  for (const char* word : {"trian", "--lr", "x"}) {
    CLI::App app("trains", "spillway");
    app.add_subcommand("train", "trains");
    app.require_subcommand(1);
    const char* arguments[] = {"spillway", word};
    EXPECT_THROW(parse_command_line(app, 2, arguments), InputError) << word;
  }
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
