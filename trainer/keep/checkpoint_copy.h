// A checkpoint that is copied while training goes on, of state that is held meanwhile (offload/state_hold.h): out of the run's
// own store where steps are durable, and then a kill goes back to that very state; else out of device memory.
// Not here: checkpoints written while training waits (checkpoint.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "offload/state_hold.h"
#include "trainer/keep/run_directory.h"
#include "trainer/keep/state_sums.h"

namespace spillway {

// Whether updates wait for the end of the copy, or half of the time is left to training's own reads and writes.
enum class CopyPace : std::uint8_t { updates_wait, nobody_waits };

class CheckpointCopy {
 public:
  // Writes the state that is held into a file; calls `between` now and then, which may throw.
  using Write = std::function<StateSums(const StateHold& held, const std::string& file, const std::function<void()>& between)>;

  // Starts at once, and lets go of the state when it is through. The directory must outlive the copy.
  CheckpointCopy(const RunDirectory& directory, std::int64_t step, StateHold hold, CopyPace pace, Write write);
  // Drops what is not finished; nothing stays behind.
  ~CheckpointCopy();

  std::int64_t step() const noexcept { return step_; }
  bool complete() const noexcept { return complete_.load(std::memory_order_acquire); }
  // Returns when the checkpoint is there and synced. Throws what went wrong.
  void finish();

 private:
  void run(const RunDirectory& directory, const Write& write) const;

  const std::int64_t step_;
  std::optional<StateHold> hold_;
  std::atomic<bool> complete_{false}, hurried_, dropped_{false};
  std::exception_ptr error_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace spillway
