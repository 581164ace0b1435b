// A file that is written into place must never take the place of a device.
#include "files/posix_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/base/error.h"

namespace spillway {
namespace {

class PipeInDirectory : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::path(testing::TempDir()) / ("spillway_posix_file_" + std::to_string(::getpid()));
    std::filesystem::create_directories(directory_);
    pipe_ = directory_ / "pipe";
    ASSERT_EQ(::mkfifo(pipe_.c_str(), 0600), 0);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::filesystem::path directory_, pipe_;
};

TEST_F(PipeInDirectory, IsWrittenToAndStaysAPipe) {
  const int reader = ::open(pipe_.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  write_text_file(pipe_, "a plan");
  char text[16] = {};
  EXPECT_EQ(::read(reader, text, sizeof text), 6);
  EXPECT_STREQ(text, "a plan");
  ::close(reader);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe_));
}

TEST_F(PipeInDirectory, IsNotReplacedByAFinishedFile) {
  EXPECT_THROW(refuse_to_replace(pipe_), InputError);
  EXPECT_THROW(refuse_to_replace(directory_), InputError);
  EXPECT_NO_THROW(refuse_to_replace(directory_ / "new"));
  const auto file = directory_ / "file";
  write_text_file(file, "text");
  EXPECT_NO_THROW(refuse_to_replace(file));
}

}  // namespace
}  // namespace spillway
