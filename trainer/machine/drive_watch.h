// What a run sees of its drive: how fast it was where it was busy, from the timelines of steps as they were recorded.
// Not here: what is made of it (drive_rates.h), where it is kept (profile_file.h).
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "memory/machine.h"
#include "memory/plan.h"
#include "memory/timeline.h"
#include "trainer/machine/drive_rates.h"

namespace spillway {

// Moves of one direction: by the time that lanes had for them alone, as planned (see drive_work()).
struct DriveFlow {
  double seconds = 0, bytes = 0;
  double rate() const { return seconds > 0 ? bytes / seconds : 0; }
};

// Of a stretch of time.
struct DriveWork {
  DriveFlow read, write;              // while nothing went the other way
  DriveFlow mixed_read, mixed_write;  // while the drive was busy both ways
  double busy_s = 0, elapsed_s = 0;

  double bytes() const { return read.bytes + write.bytes + mixed_read.bytes + mixed_write.bytes; }
  void add(const DriveWork& more);
  void fade(double share);
};

// A move of a lane, by a clock that goes on from step to step. Lanes complete their moves in order.
struct DriveMove {
  double begin_s = 0, end_s = 0;
  Bytes bytes = 0;
};

struct LaneSpans {
  std::vector<DriveMove> reads, writes;  // by when they began
  std::vector<Span> compute;
};

// Speeds of a drive while the machine computes, as shares of its own: see MachineProfile.
struct BesideCompute {
  double read = 1, write = 1;
};

// What the drive did from `begin_s` to `end_s`. A lane shows what the drive can do only while that much is under way that it does
// not wait for the next request; time in which one way is busy and the other has but little to do shows neither rate. Beside
// compute a plan takes the drive to be slower by `beside`: so much less counts the time.
DriveWork drive_work(const LaneSpans& lanes, double begin_s, double end_s, const BesideCompute& beside);

// The rates of work that was seen, of those with enough of it.
DriveRates rates_of(const DriveWork& work);

// Told of each step of a run. What is long ago counts less and less, so that it needs no more memory than two steps take.
class DriveWatch {
 public:
  // Both must outlive it.
  DriveWatch(const Plan& plan, const MachineProfile& machine);

  // `read`, `written`: what its operations moved. A step that left moves out, as those without an update to make up for, says
  // nothing. Returns what was seen where that is worth keeping: after so many seconds of a busy drive, again and again.
  std::optional<SeenDrive> observe(const Timeline& timeline, Bytes read, Bytes written);
  // After the last step.
  std::optional<SeenDrive> finish();

 private:
  void take_until(double now_s);
  std::optional<SeenDrive> seen() const;

  const Plan& plan_;
  BesideCompute beside_;
  Bytes read_bytes_ = 0, written_bytes_ = 0;  // of a step's operations
  LaneSpans lanes_;                           // that were not taken yet, or go on beyond what was
  double taken_s_ = 0;                        // until then; only where any are
  DriveWork work_;
  double unsaid_s_ = 0;  // of a busy drive since observe() last returned something
};

}  // namespace spillway
