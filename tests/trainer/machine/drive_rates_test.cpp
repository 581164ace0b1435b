// Machines with rates that runs have seen of their drive, and a plan's words for the rates that it uses.
#include "trainer/machine/drive_rates.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

MeasuredProfile measured() {
  MeasuredProfile profile;
  profile.nvme_read_bytes = 4e9, profile.nvme_write_bytes = 8e9;
  profile.nvme_mixed_read_bytes = 2e9, profile.nvme_mixed_write_bytes = 2e9;
  profile.compute_beside_read = 0.8, profile.update_beside_write = 0.6;
  profile.probed_at = "2026-11-22T18:30Z";
  return profile;
}

MachineProfile seen_as(const DriveRates& rates) {
  MeasuredProfile profile = measured();
  profile.seen = SeenDrive{.rates = rates, .at = "2026-11-23T09:00Z", .seconds = 84, .bytes = 1e11};
  return as_seen(profile);
}

TEST(DriveRates, WithoutARunTheProbeHolds) {
  const MachineProfile machine = as_seen(measured());
  EXPECT_EQ(machine.nvme_write_bytes, 8e9);
  EXPECT_EQ(machine.compute_beside_read, 0.8);
}

TEST(DriveRates, WhatWasSeenTakesItsPlace) {
  const MachineProfile machine = seen_as({.read = 2e9, .write = 1.5e9, .mixed_read = 1e9, .mixed_write = 0.8e9});
  EXPECT_EQ(machine.nvme_read_bytes, 2e9);
  EXPECT_EQ(machine.nvme_write_bytes, 1.5e9);
  EXPECT_EQ(machine.nvme_mixed_read_bytes, 1e9);
  EXPECT_EQ(machine.nvme_mixed_write_bytes, 0.8e9);
  EXPECT_NEAR(machine.compute_beside_read, 0.9, 1e-12) << "half as fast, it takes half as much of the rest";
  EXPECT_NEAR(machine.update_beside_write, 1 - 0.4 * 1.5 / 8, 1e-12);
}

TEST(DriveRates, WhatWasNotSeenChangesAsWhatWas) {
  MachineProfile machine = seen_as({.mixed_read = 1e9, .mixed_write = 0.5e9});
  EXPECT_NEAR(machine.nvme_read_bytes, 2e9, 1) << "as its own way";
  EXPECT_NEAR(machine.nvme_write_bytes, 2e9, 1);
  machine = seen_as({.read = 1e9, .mixed_write = 2e9});  // a quarter and the whole: a half in the geometric mean
  EXPECT_NEAR(machine.nvme_mixed_read_bytes, 0.5e9, 1);
  EXPECT_NEAR(machine.nvme_write_bytes, 8e9, 1);
  machine = seen_as({.read = 1e9});
  EXPECT_NEAR(machine.nvme_write_bytes, 2e9, 1);
  EXPECT_NEAR(machine.nvme_mixed_write_bytes, 0.5e9, 1);
}

TEST(DriveRates, BesideTheOtherWayADriveIsNoFasterThanAlone) {
  MachineProfile machine = seen_as({.read = 1e9, .write = 8e9, .mixed_read = 1.2e9, .mixed_write = 2e9});
  EXPECT_EQ(machine.nvme_mixed_read_bytes, 1e9);
  machine = seen_as({.write = 8e9, .mixed_read = 9e9, .mixed_write = 2e9});
  EXPECT_GE(machine.nvme_read_bytes, machine.nvme_mixed_read_bytes);
}

TEST(DriveRates, SaidInWords) {
  MeasuredProfile profile = measured();
  EXPECT_EQ(drive_in_words(profile),
            "as probed (2026-11-22 18:30 UTC): 4.00 GB/s read, 8.00 GB/s written, 2.00 GB/s and 2.00 GB/s both at once; no run "
            "has kept it busy for long since");
  profile.seen = SeenDrive{.rates = {.read = 2e9, .write = 1e9, .mixed_read = 1e9, .mixed_write = 0.5e9},
                           .at = "2026-11-23T09:00Z",
                           .seconds = 84,
                           .bytes = 1e11};
  EXPECT_EQ(drive_in_words(profile),
            "as a run saw it (2026-11-23 09:00 UTC, over 84.0 s of a busy drive): 2.00 GB/s read, 1.00 GB/s written, 1.00 GB/s "
            "and 500 MB/s both at once; as probed (2026-11-22 18:30 UTC) it was 2.00 to 8.00 times as fast");
  EXPECT_EQ(drive_in_words(MeasuredProfile{}), "");
}

TEST(DriveRates, HoursHaveOneForm) {
  EXPECT_TRUE(is_utc_minute(utc_minute_now())) << utc_minute_now();
  for (const char* text : {"", "2026-11-23", "2026-11-23T09:00", "2026-11-23T09:00Z ", "2026-11-23 09:00Z", "x026-11-23T09:00Z"})
    EXPECT_FALSE(is_utc_minute(text)) << text;
}

}  // namespace
}  // namespace spillway
