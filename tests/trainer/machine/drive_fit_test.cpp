#include "trainer/machine/drive_fit.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

// The step: 2 s of other work, then 10 GB of reads.
double step_s(const MachineProfile& machine) { return 2 + 10e9 / machine.nvme_read_bytes; }

class DriveFit : public testing::Test {
 protected:
  DriveFit() {
    machine_.nvme_read_bytes = machine_.nvme_mixed_read_bytes = 4e9;
    machine_.nvme_write_bytes = machine_.nvme_mixed_write_bytes = 2e9;
    seen_ = {.rates = {.read = 2e9, .mixed_write = 1e9}, .at = "2026-11-23T09:00Z", .seconds = 30, .bytes = 60e9};
  }
  MachineProfile machine_;
  SeenDrive seen_;
};

TEST_F(DriveFit, RatesExplainTheSteps) {
  const SeenDrive fit = fitted(seen_, machine_, 6, step_s);
  EXPECT_NEAR(fit.rates.read, 2.5e9, 0.01e9);
  EXPECT_NEAR(fit.rates.mixed_write / fit.rates.read, 0.5, 1e-9) << "all are changed alike";
  EXPECT_EQ(fit.rates.write, 0) << "not seen before, not seen now";
  EXPECT_EQ(fit.at, seen_.at);
  EXPECT_EQ(fit.seconds, seen_.seconds);
}

TEST_F(DriveFit, WhatTheDriveDoesNotExplainIsNotItsDoing) {
  EXPECT_EQ(fitted(seen_, machine_, 30, step_s).rates.read, 2e9) << "slower than with any rates";
  EXPECT_EQ(fitted(seen_, machine_, 1, step_s).rates.read, 2e9) << "faster than with any rates";
  EXPECT_EQ(fitted(seen_, machine_, 5, [](const MachineProfile&) { return 5.0; }).rates.read, 2e9) << "it does not decide";
}

TEST(StepLengths, TheFirstStepCountsWhereItIsAlone) {
  StepLengths lengths;
  EXPECT_EQ(lengths.median(), 0);
  lengths.add(1);
  EXPECT_EQ(lengths.median(), 1);
  lengths.add(10);
  EXPECT_EQ(lengths.median(), 10);
  lengths.add(12);
  EXPECT_EQ(lengths.median(), 11);
  for (int i = 0; i < 100; ++i) lengths.add(20);
  EXPECT_EQ(lengths.median(), 20);
}

}  // namespace
}  // namespace spillway
