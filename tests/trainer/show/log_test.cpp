#include "trainer/show/log.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "memory/base/error.h"
#include "tests/trainer/temporary_directory.h"

namespace spillway {
namespace {

StepRecord record_of(std::int64_t step) {
  StepRecord record;
  record.step = step;
  record.loss = 1.0 / static_cast<double>(step + 2);
  record.grad_norm = 0.1F;  // a float keeps its bits as a double
  record.lr = 3e-4;
  record.tokens = 4096;
  record.step_s = 12.5;
  record.tokens_per_s = 327.68;
  record.peak_bytes[Tier::device] = 1 << 30;
  record.nvme_read_bytes = std::int64_t{1} << 60;
  record.bound_s = 11.9;
  record.binding_lane = "nvme_read";
  record.overlap_efficiency = 0.952;
  return record;
}

void expect_same_bits(double a, double b) { EXPECT_EQ(std::bit_cast<std::uint64_t>(a), std::bit_cast<std::uint64_t>(b)); }

TEST(Log, NumbersReadBackToTheSameBits) {
  std::uint64_t random = 1;
  for (int i = 0; i < 20'000; ++i) {
    random = random * 6364136223846793005U + 1442695040888963407U;
    const double value = std::bit_cast<double>(random);
    if (!std::isfinite(value)) continue;
    StepRecord record = record_of(1);
    record.loss = value;
    expect_same_bits(parse_log_line(to_log_line(record), "x").loss, value);
  }
  for (const double value :
       {0.0, -0.0, std::numeric_limits<double>::denorm_min(), std::numeric_limits<double>::max(), 1e21, 3.0}) {
    StepRecord record = record_of(1);
    record.loss = value;
    expect_same_bits(parse_log_line(to_log_line(record), "x").loss, value);
  }
}

TEST(Log, EveryFieldIsThere) {
  StepRecord record = record_of(3);
  record.loss_scale = 65536;
  record.eval_loss = 2.5;
  record.network_bytes = 1024;
  const auto json = nlohmann::json::parse(to_log_line(record));
  for (const char* key : {"step", "loss", "grad_norm", "lr", "tokens", "step_s", "tokens_per_s", "device_peak_bytes",
                          "host_peak_bytes", "nvme_read_bytes", "nvme_written_bytes", "bound_s", "binding_lane",
                          "overlap_efficiency", "loss_scale", "eval_loss", "network_bytes"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_FALSE(nlohmann::json::parse(to_log_line(record_of(3))).contains("eval_loss"));
  const StepRecord again = parse_log_line(to_log_line(record), "x");
  EXPECT_EQ(again.eval_loss, 2.5);
  EXPECT_EQ(again.binding_lane, "nvme_read");
  EXPECT_EQ(again.nvme_read_bytes, std::int64_t{1} << 60);
}

TEST(Log, NumbersThatAreNotFiniteAreStrings) {
  StepRecord record = record_of(1);
  record.loss = std::numeric_limits<double>::quiet_NaN();
  record.grad_norm = std::numeric_limits<double>::infinity();
  record.lr = -std::numeric_limits<double>::infinity();
  const auto json = nlohmann::json::parse(to_log_line(record));
  EXPECT_EQ(json["loss"], "NaN");
  EXPECT_EQ(json["grad_norm"], "Infinity");
  const StepRecord again = parse_log_line(to_log_line(record), "x");
  EXPECT_TRUE(std::isnan(again.loss));
  EXPECT_EQ(again.grad_norm, record.grad_norm);
  EXPECT_EQ(again.lr, record.lr);
}

TEST(Log, ResumingCutsLaterStepsOff) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/log.jsonl";
  {
    LogWriter log(path, 0);
    for (std::int64_t step = 1; step <= 10; ++step) log.append(record_of(step));
    EXPECT_EQ(read_log(path).size(), 10U) << "each line is there as soon as it is written";
  }
  {
    LogWriter log(path, 6);
    EXPECT_EQ(read_log(path).size(), 6U);
    log.append(record_of(7));
  }
  const auto records = read_log(path);
  ASSERT_EQ(records.size(), 7U);
  for (std::size_t i = 0; i < 7; ++i) EXPECT_EQ(records[i].step, static_cast<std::int64_t>(i) + 1);
  LogWriter anew(path, 0);
  EXPECT_TRUE(read_log(path).empty());
}

TEST(Log, ATornLastLineIsLeftOut) {
  const TemporaryDirectory directory;
  const std::string whole = to_log_line(record_of(1)) + "\n" + to_log_line(record_of(2)) + "\n";
  const std::string path = directory.file("log.jsonl", whole + to_log_line(record_of(3)).substr(0, 40));
  EXPECT_EQ(read_log(path).size(), 2U);
  LogWriter log(path, 3);
  log.append(record_of(3));
  EXPECT_EQ(read_log(path).size(), 3U);
}

TEST(Log, DamageIsNamed) {
  const TemporaryDirectory directory;
  const std::string good = to_log_line(record_of(1)) + "\n";
  for (const char* line : {"", "x", "[]", "{}", "{\"step\": 1.5}", "{\"step\": \"1\"}", "{\"step\": 1, \"loss\": \"big\"}"}) {
    const std::string path = directory.file("log.jsonl", good + line + "\n" + good);
    EXPECT_REFUSED(read_log(path), IoError, "log.jsonl line 2 is damaged: ");
    EXPECT_REFUSED(LogWriter(path, 5), IoError, "log.jsonl line 2 is damaged: ");
  }
  EXPECT_REFUSED(read_log(directory.path() + "/none"), IoError, "none");
  EXPECT_REFUSED(LogWriter("/nonexistent/log.jsonl", 0), IoError, "/nonexistent/log.jsonl");
}

TEST(Log, ADeviceIsNoLog) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/log.jsonl";
  std::filesystem::create_symlink("/dev/zero", path);
  EXPECT_REFUSED(read_log(path), IoError, "log.jsonl: is not a regular file");
  EXPECT_REFUSED(LogWriter(path, 1), IoError, "log.jsonl: is not a regular file");
}

TEST(Log, WhatCannotBeWrittenIsNamed) {
  const TemporaryDirectory directory;
  LogWriter log(directory.path() + "/log.jsonl", 0);
  const FileSizeLimit limit(100);  // fails as a full disk does
  EXPECT_REFUSED(log.append(record_of(2)), IoError, "log.jsonl: writing");
}

}  // namespace
}  // namespace spillway
