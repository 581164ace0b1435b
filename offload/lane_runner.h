// Takes runs through their programs, turn after turn. Each lane's thread takes the lane's operations in order, starts each when
// all operations of other lanes that it waits for are complete, and records when it began and ended. Where a stream of a device
// executes a lane's work, the thread enqueues it and goes on (enqueued_lane.h). Up to two runs may be under way: one runs its
// tail while the next begins. Not here: what an operation does (operations.h), what a step is (executor.h).
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/slow_collective.h"
#include "memory/runtime/runtime.h"
#include "nvme/store_channel.h"
#include "offload/bound_program.h"
#include "offload/committer.h"
#include "offload/device.h"
#include "offload/enqueued_lane.h"
#include "offload/lane_progress.h"
#include "offload/nvme_lane.h"
#include "offload/operations.h"
#include "offload/run_under_way.h"

namespace spillway {

class LaneRunner {
 public:
  // Channels (one for each lane to or from a store) and extents may be null where no program has such moves; the committer may be
  // null where no run has a commit. All must outlive this. `most_operations`: those of the longest program.
  struct Around {
    By<Lane, StoreChannel*> channels;
    StateExtents* extents = nullptr;
    Committer* committer = nullptr;
    const std::atomic<int>* updates_held = nullptr;  // updates wait until it is 0
    Device* device = nullptr;                        // makes copies, and computes where it has a stream for that
    Communicator* communicator = nullptr;            // of the network lane; null: there is none
    SlowCollective* slow_collective = nullptr;       // hears of the network lane's operations; may be null
    Chain chain = Chain::device_nvme;
    std::size_t ahead = 1;  // operations that a lane enqueues before the first of them is complete
  };
  LaneRunner(Operations& operations, const Around& around, std::size_t most_operations);
  ~LaneRunner();
  LaneRunner(const LaneRunner&) = delete;
  LaneRunner& operator=(const LaneRunner&) = delete;

  // The run to fill in next. It stays the same until begin(), from when it is under way.
  Run& next();
  void begin(Run& run, const BoundProgram& program);
  // Returns the oldest run under way when it is complete; it may be read until next() comes round to it. Throws a lane's
  // exception; then nothing more runs.
  Run& wait_for_oldest();
  void check_idle(const char* what) const;
  By<Tier, Bytes> peak() const { return peak_; }  // highest byte touched on each tier by the runs waited for so far

 private:
  struct LaneArgument {
    LaneRunner* runner;
    Run* run;
    Lane lane;
  };

  static void run_lane_of(void* argument);
  void run_lane(Run& run, Lane lane);
  void run_operations(Run& run, Lane lane, const std::vector<BoundOp>& ops);
  void run_moves(Run& run, Lane lane, const std::vector<BoundOp>& ops);
  bool ready(const Run& run, int turn, const BoundOp& op) const;
  void wait_until_ready(const Run& run, int turn, const BoundOp& op) const;
  void run_enqueued(Run& run, EnqueuedLane& lane, const std::vector<BoundOp>& ops);
  void complete(Lane lane, const EnqueuedLane::Ticket& ticket, bool is_complete);
  void end_lane(Run& run);
  void copy(const BoundOp& op, Stream& stream) const;
  // Executes the operation. Returns why the run must stop; empty: it need not.
  std::string execute(Run& run, int turn, const BoundOp& op);
  std::string start(Run& run, int turn, const BoundOp& op);
  void wait_until_state_may_change() const;
  bool skipped(const Run& run, int turn, const BoundOp& op) const;
  static void guard(const Run& run, const BoundOp& op);
  // Counts an operation as complete, or as passed over: others need not wait for it any more.
  void pass(const Run& run, Lane lane, int turn, const BoundOp& op);
  static void note_peak(Run& run, Lane lane, const BoundOp& op);
  void stop(Run& run, std::string reason);  // or skips its step
  void fail(std::exception_ptr error);      // ends all runs
  void throw_if_failed() const;
  double seconds_now() const;

  Operations& operations_;
  const Around around_;
  const std::vector<Lane> lanes_;
  std::unique_ptr<Runtime> runtime_;

  LaneProgress progress_;
  By<Lane, std::uint32_t> total_;  // operations of all runs begun so far
  const BoundProgram* last_program_ = nullptr;
  std::array<Run, kRunsUnderWay> runs_;
  By<Lane, std::array<LaneArgument, kRunsUnderWay>> lane_arguments_;
  std::int64_t submitted_ = 0, waited_ = 0;
  By<Tier, Bytes> peak_;
  const std::chrono::steady_clock::time_point created_ = std::chrono::steady_clock::now();

  std::mutex end_mutex_;
  std::atomic<bool> failed_{false};
  std::exception_ptr failure_;
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  std::atomic<std::int64_t> stopped_run_{kNone};  // number of the oldest run that was stopped

  By<Lane, std::unique_ptr<Stream>> copies_;          // for the lanes between two memories
  By<Lane, std::unique_ptr<EnqueuedLane>> enqueued_;  // for the lanes whose work a stream of the device executes
  By<Lane, double> last_end_s_;                       // end of the last operation of each such lane
  By<Lane, std::unique_ptr<Stream>> streams_;         // last: their threads end before what they use
};

}  // namespace spillway
