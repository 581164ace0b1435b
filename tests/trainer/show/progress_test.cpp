#include "trainer/show/progress.h"
#include "trainer/words/quantity.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <limits>

#include "tests/trainer/temporary_directory.h"

namespace spillway {
namespace {

using testing::HasSubstr;
using testing::Not;

StepRecord record_of(std::int64_t step) {
  StepRecord record;
  record.step = step;
  record.loss = 4.12345;
  record.tokens_per_s = 1234.4;
  record.step_s = 2;
  record.binding_lane = "nvme_read";
  record.overlap_efficiency = 0.953;
  return record;
}

class ProgressFile : public testing::Test {
 protected:
  ProgressFile() : path_(directory_.path() + "/out"), fd_(open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)) {}
  ~ProgressFile() override { close(fd_); }
  std::string written() const { return content_of(path_); }

  TemporaryDirectory directory_;
  std::string path_;
  int fd_;
};

TEST(ProgressLine, SaysWhatThereIs) {
  ProgressState state;
  state.record = record_of(12);
  state.train_iters = 100;
  state.seconds_left = 72;
  state.tiers[Tier::device] = {512 * kMiB, kGiB};
  EXPECT_EQ(progress_line(state, ProgressStyle::plain),
            "step 12/100 · loss 4.1235 · 1,234 tokens/s · ETA 1m 12s · device 512.0 MiB of 1.0 GiB · bound by nvme_read (95 %)");
  EXPECT_THAT(progress_line(state, ProgressStyle::live), Not(HasSubstr("\x1b")));
  EXPECT_THAT(progress_line(state, ProgressStyle::live_with_colour), HasSubstr("\x1b["));
  state.record.eval_loss = 2.5;
  EXPECT_THAT(progress_line(state, ProgressStyle::plain), HasSubstr("eval loss 2.5000"));
  state.record.loss = std::numeric_limits<double>::quiet_NaN();
  state.record.tokens_per_s = std::numeric_limits<double>::infinity();
  EXPECT_THAT(progress_line(state, ProgressStyle::plain), HasSubstr("loss nan · ? tokens/s"));
}

TEST(ProgressLine, RoundsForPeople) {
  EXPECT_EQ(rounded_size(0), "0 B");
  EXPECT_EQ(rounded_size(1023), "1023 B");
  EXPECT_EQ(rounded_size(1536), "1.5 KiB");
  EXPECT_EQ(rounded_size(kGiB - 1), "1.0 GiB");
  EXPECT_EQ(rounded_size(std::numeric_limits<Bytes>::max()), "8192.0 PiB");
  EXPECT_EQ(rounded_time(0), "0s");
  EXPECT_EQ(rounded_time(59.6), "1m 00s");
  EXPECT_EQ(rounded_time(3661), "1h 01m");
  EXPECT_EQ(rounded_time(90000), "1d 01h");
  EXPECT_EQ(rounded_time(-1), "?");
  EXPECT_EQ(rounded_time(1e300), "?");
}

TEST_F(ProgressFile, PlainLinesFollowTheInterval) {
  {
    Progress progress(fd_, ProgressStyle::plain, 7, 3);
    for (std::int64_t step = 1; step <= 7; ++step) progress.step(record_of(step));
    progress.message("saved");
  }
  const std::string text = written();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
  EXPECT_THAT(text, HasSubstr("step 3/7 "));
  EXPECT_THAT(text, HasSubstr("step 6/7 "));
  EXPECT_THAT(text, HasSubstr("step 7/7 "));
  EXPECT_THAT(text, HasSubstr("ETA 2s"));
  EXPECT_THAT(text, Not(HasSubstr("\r")));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST_F(ProgressFile, ALiveLineIsRewrittenAndEnded) {
  {
    Progress progress(fd_, ProgressStyle::live, 3, 100);
    progress.step(record_of(1));
    progress.message("saved");
    progress.step(record_of(2));
  }
  const std::string text = written();
  EXPECT_THAT(text, testing::StartsWith("\r\x1b[Kstep 1/3"));
  EXPECT_THAT(text, HasSubstr("\r\x1b[Ksaved\n"));
  EXPECT_THAT(text, testing::EndsWith("\n"));
  // A pipe has no terminal width, so 80 columns are assumed: a line that wraps could not be erased.
  const std::string line = text.substr(text.rfind("\x1b[K") + 3);
  EXPECT_LE(std::count_if(line.begin(), line.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }), 80);
}

TEST_F(ProgressFile, AFileIsPlain) { EXPECT_EQ(progress_style_of(fd_), ProgressStyle::plain); }

TEST(ProgressPipe, AReaderThatLeavesDoesNotEndTheRun) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  const auto former = std::signal(SIGPIPE, SIG_IGN);
  Progress progress(ends[1], ProgressStyle::plain, 2, 1);
  EXPECT_NO_THROW(progress.step(record_of(1)));
  std::signal(SIGPIPE, former);
  close(ends[1]);
}

}  // namespace
}  // namespace spillway
