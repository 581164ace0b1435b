// Copies a checkpoint while training goes on, from state that is held meanwhile (offload/state_hold.h): from the run's own store
// if its steps are durable, and a kill then goes back to that very state; else from device memory.
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

// updates_wait: the copy runs at full speed, because updates wait for its end. nobody_waits: it leaves half of the time to
// training's own reads and writes.
enum class CopyPace : std::uint8_t { updates_wait, nobody_waits };

class CheckpointCopy {
 public:
  // Writes the held state into a file. Calls `between` after each piece; `between` may throw.
  using Write = std::function<StateSums(const StateHold& held, const std::string& file, const std::function<void()>& between)>;

  // Starts at once and releases the state when it ends. The directory must outlive the copy.
  CheckpointCopy(const RunDirectory& directory, std::int64_t step, StateHold hold, CopyPace pace, Write write);
  // Drops an unfinished copy; nothing stays behind.
  ~CheckpointCopy();

  std::int64_t step() const noexcept { return step_; }
  bool complete() const noexcept { return complete_.load(std::memory_order_acquire); }
  // Returns when the checkpoint is complete and synced. Rethrows an exception of the copy.
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
