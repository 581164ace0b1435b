// A checkpoint that is copied out of the run's own store while training goes on: the state is durable there and held (see DurableHold),
// so that steps neither wait for the copy nor change what it reads. Meanwhile a kill goes back to that very state.
// Not here: checkpoints written while training waits (checkpoint.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <thread>

#include "nvme/store.h"
#include "offload/executor.h"
#include "trainer/run_directory.h"

namespace spillway {

class CheckpointCopy {
 public:
  // Starts at once. Both must outlive the copy.
  CheckpointCopy(const RunDirectory& directory, std::int64_t step, Store& store, const StoreIdentity& identity, DurableHold hold);
  // Drops what is not finished; nothing stays behind.
  ~CheckpointCopy();

  std::int64_t step() const noexcept { return step_; }
  bool complete() const noexcept { return complete_.load(std::memory_order_acquire); }
  // Returns when the checkpoint is there and synced. Throws what went wrong.
  void finish();

 private:
  void copy(const RunDirectory& directory, Store& store, const StoreIdentity& identity) const;

  const std::int64_t step_;
  const DurableHold hold_;
  std::atomic<bool> complete_{false}, hurried_{false}, dropped_{false};
  std::exception_ptr error_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace spillway
