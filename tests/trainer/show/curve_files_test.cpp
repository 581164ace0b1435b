// --csv and --tensorboard: the contents of their files, and how a run that goes on continues them.
#include <gtest/gtest.h>

#include "memory/base/error.h"
#include "tests/trainer/temporary_directory.h"
#include "trainer/show/csv_log.h"
#include "trainer/show/tensorboard.h"

namespace spillway {
namespace {

StepRecord record_of(std::int64_t step) {
  StepRecord record;
  record.step = step;
  record.loss = 1.0 / static_cast<double>(step);
  record.binding_lane = "compute";
  if (step % 2 == 0) record.eval_loss = 2.5;
  return record;
}

template <typename Log>
void write_steps(const std::string& path, std::int64_t first, std::int64_t last) {
  Log log(path, first - 1);
  for (std::int64_t step = first; step <= last; ++step) log.append(record_of(step));
}

TEST(CsvLog, OneRowAStep) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/a.csv";
  write_steps<CsvLog>(path, 1, 2);
  EXPECT_EQ(
      content_of(path),
      "step,loss,grad_norm,lr,tokens,step_s,tokens_per_s,device_peak_bytes,host_peak_bytes,nvme_read_bytes,nvme_written_bytes,"
      "bound_s,binding_lane,overlap_efficiency,loss_scale,eval_loss\n"
      "1,1.0,0.0,0.0,0,0.0,0.0,0,0,0,0,0.0,compute,0.0,,\n"
      "2,0.5,0.0,0.0,0,0.0,0.0,0,0,0,0,0.0,compute,0.0,,2.5\n");
}

TEST(CsvLog, GoesOnWithoutStepsTwice) {
  const TemporaryDirectory directory;
  const std::string whole = directory.path() + "/whole.csv", parts = directory.path() + "/parts.csv";
  write_steps<CsvLog>(whole, 1, 9);
  write_steps<CsvLog>(parts, 1, 7);
  std::ofstream(parts, std::ios::app) << "8,0.12";  // killed within a write
  write_steps<CsvLog>(parts, 5, 9);
  EXPECT_EQ(content_of(parts), content_of(whole));
}

TEST(CsvLog, Refusals) {
  const TemporaryDirectory directory;
  const std::string other = directory.file("other.csv", "name,age\nx,1\n");
  EXPECT_REFUSED(CsvLog(other, 0), InputError, "other.csv");
  EXPECT_REFUSED(CsvLog(other, 3), IoError, "line 1");
  EXPECT_EQ(content_of(other), "name,age\nx,1\n");
  EXPECT_REFUSED(CsvLog(directory.path() + "/no/such.csv", 0), IoError, "cannot be written");
}

TEST(TensorboardLog, Crc32c) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
}

// Everything but the times, which are in the ninth to the sixteenth byte of an event.
std::string without_times(std::string content) {
  for (std::size_t at = 0; at + 12 < content.size();) {
    const auto length = static_cast<unsigned char>(content[at]) + 256u * static_cast<unsigned char>(content[at + 1]);
    content.replace(at + 13, 8, 8, '\0');
    content.replace(at + 12 + length, 4, 4, '\0');
    at += 16 + length;
  }
  return content;
}

TEST(TensorboardLog, GoesOnWithoutStepsTwice) {
  const TemporaryDirectory directory;
  const std::string name = "/events.out.tfevents.spillway";
  const std::string whole = directory.path() + "/whole", parts = directory.path() + "/parts/within";
  write_steps<TensorboardLog>(whole, 1, 200);
  write_steps<TensorboardLog>(parts, 1, 150);
  const std::string begun = content_of(parts + name);
  std::ofstream(parts + name, std::ios::app) << begun.substr(60, 31);  // killed within a write
  write_steps<TensorboardLog>(parts, 140, 200);
  EXPECT_EQ(without_times(content_of(parts + name)), without_times(content_of(whole + name)));
}

TEST(TensorboardLog, BeginsWhereARunCouldNot) {
  const TemporaryDirectory directory;
  const std::string name = "/events.out.tfevents.spillway";
  const std::string whole = directory.path() + "/whole", left = directory.path() + "/left";
  write_steps<TensorboardLog>(whole, 1, 3);
  TensorboardLog(left, 0);  // no step came
  write_steps<TensorboardLog>(left, 1, 3);
  EXPECT_EQ(without_times(content_of(left + name)), without_times(content_of(whole + name)));
  std::ofstream(left + name, std::ios::trunc).flush();  // as if there had been no room for the first record
  write_steps<TensorboardLog>(left, 1, 3);
  EXPECT_EQ(without_times(content_of(left + name)), without_times(content_of(whole + name)));
}

TEST(TensorboardLog, Refusals) {
  const TemporaryDirectory directory;
  write_steps<TensorboardLog>(directory.path(), 1, 2);
  EXPECT_REFUSED(TensorboardLog(directory.path(), 0), InputError, "events.out.tfevents");
  EXPECT_REFUSED(TensorboardLog(directory.file("file", "x"), 0), IoError, "--tensorboard");
}

}  // namespace
}  // namespace spillway
