#include "trainer/keep/run_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory/base/error.h"
#include "tests/trainer/temporary_directory.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

void write_checkpoint(const RunDirectory& run, std::int64_t step, const std::string& content) {
  const std::string place = run.begin_checkpoint(step);
  fs::create_directory(place + "/inner");
  std::ofstream(place + "/inner/state") << content;
  EXPECT_EQ(run.commit_checkpoint(step), checkpoint_path(run.path(), step));
}

TEST(RunDirectory, IsMadeWithItsParents) {
  const TemporaryDirectory directory;
  const RunDirectory run(directory.path() + "/a/b", ExistingRun::refuse);
  run.write("run.json", "{}");
  run.write("run.json", "{\"lr\": 1}");
  EXPECT_EQ(content_of(directory.path() + "/a/b/run.json"), "{\"lr\": 1}");
  EXPECT_EQ(run.log_path(), directory.path() + "/a/b/log.jsonl");
}

TEST(RunDirectory, AnExistingRunIsNotOverwritten) {
  const TemporaryDirectory directory;
  {
    RunDirectory run(directory.path(), ExistingRun::refuse);
    run.write("run.json", "{}");
    run.keep();
  }
  EXPECT_REFUSED(RunDirectory(directory.path(), ExistingRun::refuse), InputError, "already holds a run");
  EXPECT_NO_THROW(RunDirectory(directory.path(), ExistingRun::go_on));
}

TEST(RunDirectory, ARunThatIsNotKeptLeavesNothing) {
  const TemporaryDirectory directory;
  const auto begin = [&](const std::string& path) {
    const RunDirectory run(path, ExistingRun::refuse);
    run.write("run.json", "{}");
    run.write("plan.json", "{}");
    std::ofstream(run.log_path()).flush();
  };
  begin(directory.path() + "/a/b");
  EXPECT_TRUE(fs::is_empty(directory.path())) << "nor the parents that were made for it";
  directory.file("notes.txt", "mine");
  directory.file("plan.json", "that of --plan, say");
  begin(directory.path());
  EXPECT_EQ(content_of(directory.path() + "/notes.txt"), "mine");
  EXPECT_TRUE(fs::exists(directory.path() + "/plan.json"));
  EXPECT_FALSE(fs::exists(directory.path() + "/run.json"));
  fs::create_directory(directory.path() + "/c");
  begin(directory.path() + "/c");
  EXPECT_TRUE(fs::is_empty(directory.path() + "/c")) << "a directory that was there stays";
}

TEST(RunDirectory, TwoRunsDoNotShareIt) {
  const TemporaryDirectory directory;
  {
    RunDirectory first(directory.path(), ExistingRun::refuse);
    EXPECT_REFUSED(RunDirectory(directory.path(), ExistingRun::go_on), InputError, "another run is using");
    const RunDirectory moved(std::move(first));
    EXPECT_REFUSED(RunDirectory(directory.path(), ExistingRun::go_on), InputError, "another run is using");
  }
  const RunDirectory again(directory.path(), ExistingRun::go_on);
}

TEST(RunDirectory, CheckpointsCountOnceCommitted) {
  const TemporaryDirectory directory;
  const RunDirectory run(directory.path(), ExistingRun::refuse);
  write_checkpoint(run, 10, "ten");
  write_checkpoint(run, 9, "nine");
  run.begin_checkpoint(11);
  fs::create_directory(directory.path() + "/checkpoints/007");
  fs::create_directory(directory.path() + "/checkpoints/x");
  EXPECT_THAT(checkpoint_steps(directory.path()), ElementsAre(9, 10));
  write_checkpoint(run, 10, "ten again");
  EXPECT_EQ(content_of(checkpoint_path(directory.path(), 10) + "/inner/state"), "ten again");
  EXPECT_THAT(checkpoint_steps(directory.path() + "/none"), testing::IsEmpty());
}

TEST(RunDirectory, KeepsTheLast) {
  const TemporaryDirectory directory;
  const RunDirectory run(directory.path(), ExistingRun::refuse);
  for (const std::int64_t step : {2, 4, 100, 30}) write_checkpoint(run, step, "x");
  run.prune_checkpoints(0);
  EXPECT_EQ(checkpoint_steps(directory.path()).size(), 4U);
  run.prune_checkpoints(2);
  EXPECT_THAT(checkpoint_steps(directory.path()), ElementsAre(30, 100));
  run.prune_checkpoints(5);
  EXPECT_THAT(checkpoint_steps(directory.path()), ElementsAre(30, 100));
}

TEST(RunDirectory, WhatAKillLeftBehindIsRemoved) {
  const TemporaryDirectory directory;
  {
    RunDirectory run(directory.path(), ExistingRun::refuse);
    run.keep();
    std::ofstream(run.begin_checkpoint(5) + "/half") << "half";
    directory.file("run.json.partial", "{");
  }
  const RunDirectory run(directory.path(), ExistingRun::go_on);
  EXPECT_TRUE(fs::is_empty(directory.path() + "/checkpoints"));
  EXPECT_FALSE(fs::exists(directory.path() + "/run.json.partial"));
}

TEST(RunDirectory, WhatCannotBeWrittenIsNamed) {
  const TemporaryDirectory directory;
  const std::string file = directory.file("file", "x");
  EXPECT_REFUSED(RunDirectory(file, ExistingRun::refuse), IoError, file);
  EXPECT_REFUSED(RunDirectory(file + "/below", ExistingRun::refuse), IoError, file);
  EXPECT_REFUSED(RunDirectory("/proc/nothing/here", ExistingRun::refuse), IoError, "/proc/nothing");

  const RunDirectory run(directory.path() + "/run", ExistingRun::refuse);
  run.write("run.json", "old");
  {
    const FileSizeLimit limit(1000);
    EXPECT_REFUSED(run.write("run.json", std::string(2000, 'x')), IoError, "run.json");
  }
  EXPECT_EQ(content_of(directory.path() + "/run/run.json"), "old") << "the old file is whole";
  EXPECT_FALSE(fs::exists(directory.path() + "/run/run.json.partial"));
}

TEST(RunDirectory, ADirectoryWithoutPermissionIsNamed) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write anywhere";
  const TemporaryDirectory directory;
  fs::permissions(directory.path(), fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_REFUSED(RunDirectory(directory.path(), ExistingRun::refuse), IoError, directory.path());
  EXPECT_REFUSED(RunDirectory(directory.path() + "/new", ExistingRun::refuse), IoError, directory.path());
}

}  // namespace
}  // namespace spillway
