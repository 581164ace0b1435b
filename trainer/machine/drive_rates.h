// Rates of drives from two sources: the probe, which measures a rested drive, and runs, which see the rates that remain after
// minutes of work.
// Not here: how the rates are measured (probe.h, drive_watch.h), the file that keeps them (profile_file.h).
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "memory/plan/machine.h"
#include "trainer/machine/rate_table.h"

namespace spillway {

// Bytes a second, as in the machine's profile; 0 if unknown.
struct DriveRates {
  double read = 0, write = 0;              // alone
  double mixed_read = 0, mixed_write = 0;  // both directions at the same time
};

struct DriveRateName {
  double DriveRates::* rate;
  double MachineProfile::* of_machine;
  std::string_view name = name_of_rate(of_machine);
};
inline constexpr std::array<DriveRateName, 4> kDriveRates = {
    {{&DriveRates::read, &MachineProfile::nvme_read_bytes},
     {&DriveRates::write, &MachineProfile::nvme_write_bytes},
     {&DriveRates::mixed_read, &MachineProfile::nvme_mixed_read_bytes},
     {&DriveRates::mixed_write, &MachineProfile::nvme_mixed_write_bytes}}};

// Rates of the drive that a run saw while the drive was busy; 0 for a rate with too little data.
struct SeenDrive {
  DriveRates rates;
  std::string at;                 // minute of its last step: "2026-11-23T09:00Z"
  double seconds = 0, bytes = 0;  // time and bytes of the busy drive that the rates come from
};

// A machine as it was measured, with the rates that runs have seen of its drive since.
struct MeasuredProfile : MachineProfile {
  std::string probed_at;  // time of the probe; empty if unknown
  std::optional<SeenDrive> seen;
};

DriveRates drive_rates_of(const MachineProfile& machine);

// The machine to plan for: its drive has the seen rates, if there are any, instead of the probe's. A rate that was not seen
// changes by the same factor as the other rate of its direction, or else by the mean factor of all seen rates.
MachineProfile as_seen(const MeasuredProfile& measured);

// The current time as "2026-11-23T09:00Z", and a test for that form.
std::string utc_minute_now();
bool is_utc_minute(std::string_view text);

// "3.90 GB/s read, 7.70 GB/s written, 2.00 + 1.90 GB/s both at once".
std::string drive_rates_in_words(const DriveRates& rates);
// Says which source a plan uses and how far the two differ; empty for a machine without a drive.
std::string drive_in_words(const MeasuredProfile& measured);

}  // namespace spillway
