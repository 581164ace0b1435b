// Measures a run's drive while it is busy, from the recorded timelines of steps.
// Not here: the use of the rates (drive_rates.h), the file that keeps them (profile_file.h).
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "memory/plan/machine.h"
#include "memory/plan/plan.h"
#include "memory/plan/timeline.h"
#include "trainer/machine/drive_rates.h"

namespace spillway {

// Moves of one direction: bytes and the seconds that lanes had for them alone, as planned (see drive_work()).
struct DriveFlow {
  double seconds = 0, bytes = 0;
  double rate() const { return seconds > 0 ? bytes / seconds : 0; }
};

// Work of the drive over a span of time.
struct DriveWork {
  DriveFlow read, write;              // while nothing went the other way
  DriveFlow mixed_read, mixed_write;  // while the drive was busy both ways
  double busy_s = 0, elapsed_s = 0;

  double bytes() const { return read.bytes + write.bytes + mixed_read.bytes + mixed_write.bytes; }
  void add(const DriveWork& more);
  void fade(double share);
};

// A move of a lane, on a clock that continues from step to step. Lanes complete their moves in order.
struct DriveMove {
  double begin_s = 0, end_s = 0;
  Bytes bytes = 0;
};

struct LaneSpans {
  std::vector<DriveMove> reads, writes;  // in the order in which they began
  std::vector<Span> compute;
};

// Speeds of a drive while the machine computes, as shares of its full speed: see MachineProfile.
struct BesideCompute {
  double read = 1, write = 1;
};

// The drive's work from `begin_s` to `end_s`. A lane shows the drive's rate only while enough bytes are under way that the drive
// never waits for the next request; while one direction is busy and the other has only a little to do, neither rate shows. A plan
// takes the drive to be slower beside compute by `beside`, so time beside compute counts less by that share.
DriveWork drive_work(const LaneSpans& lanes, double begin_s, double end_s, const BesideCompute& beside);

// The rates of observed work; 0 for a direction with too little of it.
DriveRates rates_of(const DriveWork& work);

// Observes each step of a run. Old observations fade, so that it needs no more memory than two steps.
class DriveWatch {
 public:
  // Both must outlive it.
  DriveWatch(const Plan& plan, const MachineProfile& machine);

  // `read`, `written`: bytes that the step's operations moved. A step that left out moves, such as one without an update to catch
  // up on, is ignored. Returns the rates seen when they are worth keeping: again after every few seconds of a busy drive.
  std::optional<SeenDrive> observe(const Timeline& timeline, Bytes read, Bytes written);
  // Returns the rates seen, after the last step.
  std::optional<SeenDrive> finish();

 private:
  void take_until(double now_s);
  std::optional<SeenDrive> seen() const;

  const Plan& plan_;
  BesideCompute beside_;
  Bytes read_bytes_ = 0, written_bytes_ = 0;  // bytes of a step's operations
  LaneSpans lanes_;                           // moves that are not counted yet, or that go on beyond the counted time
  double taken_s_ = 0;                        // end of the counted time; valid only if lanes_ has any
  DriveWork work_;
  double unsaid_s_ = 0;  // seconds of a busy drive since observe() last returned a value
};

}  // namespace spillway
