// How fast drives are, from two sources: the probe, which finds a rested drive, and runs, which see what is left of it after
// minutes. Not here: how either finds out (probe.h, drive_watch.h), the file that keeps both (profile_file.h).
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "memory/machine.h"
#include "trainer/machine/rate_table.h"

namespace spillway {

// Bytes a second, as in the machine's profile; 0 where not known.
struct DriveRates {
  double read = 0, write = 0;              // alone
  double mixed_read = 0, mixed_write = 0;  // beside each other
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

// What a run saw of the drive where that was busy; of rates that it saw too little of, nothing.
struct SeenDrive {
  DriveRates rates;
  std::string at;                 // the hour of its last step: "2026-11-23T09:00Z"
  double seconds = 0, bytes = 0;  // of a busy drive that they come from
};

// A machine as it was measured, with what runs have seen of its drive since.
struct MeasuredProfile : MachineProfile {
  std::string probed_at;  // the hour; empty where nobody says
  std::optional<SeenDrive> seen;
};

DriveRates drive_rates_of(const MachineProfile& machine);

// The machine to plan for: with the rates that were seen, where there are any, rather than the probe's. Those that were not seen
// are changed as those that were: by the other one of the same direction, or else as all of them are in the mean.
MachineProfile as_seen(const MeasuredProfile& measured);

// "2026-11-23T09:00Z" of now, and whether a text is such a one.
std::string utc_minute_now();
bool is_utc_minute(std::string_view text);

// "3.90 GB/s read, 7.70 GB/s written, 2.00 + 1.90 GB/s both at once".
std::string drive_rates_in_words(const DriveRates& rates);
// Which of the two a plan goes by, and how far they are apart; empty for a machine without a drive.
std::string drive_in_words(const MeasuredProfile& measured);

}  // namespace spillway
