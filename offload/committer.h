// Makes the state after a step durable once its last write is with the device, beside the steps that go on: copies what rests in
// memory into the store, then commits the record. Steps that would overwrite what is not durable yet wait here.
// Not here: the order of syncs (nvme/commit_log.h), which slot a step writes (executor.h).
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "memory/arena.h"
#include "memory/runtime.h"
#include "nvme/commit_log.h"
#include "offload/durable_layout.h"
#include "offload/lane_progress.h"
#include "offload/state_extents.h"
#include "offload/tier_memory.h"

namespace spillway {

struct DurabilityOptions {
  StoreIdentity identity;            // of the executor's store
  DurableLayout layout;              // of the executor's plan
  std::int64_t interval = 1;         // every so many steps are made durable
  std::optional<CommitRecord> from;  // the state that the store holds, to go on with; it lies_as() the layout
};

class Committer {
 public:
  // One step's state: the slot of the store that it is in, and how far the lanes are when all of it is there.
  struct Request {
    std::int64_t step = 0;
    int slot = 0;
    LaneCounts settled;     // operations that the lanes will have completed
    std::int64_t run = -1;  // whose gradients were the last to be applied; -1: the state is known to be good
  };
  // What the committer asks of the lanes, on its own thread.
  struct Lanes {
    std::function<bool(const Request&)> complete;     // returns once the lanes are there; false: the state is not worth keeping
    std::function<void(std::exception_ptr)> failed;  // told what went wrong
  };

  // All must outlive the committer. `seed` and `model` are for the record.
  Committer(const DurabilityOptions& options, const Plan& plan, std::uint64_t seed, std::uint64_t model, Store& store,
            StateExtents& extents, TierMemory& memory, Lanes lanes);
  ~Committer() { finish(); }
  Committer(const Committer&) = delete;
  Committer& operator=(const Committer&) = delete;

  // Takes up what options.from says: hashes, and from the store what rests in memory. Returns the slot that holds the state.
  int resume();
  // Queues a commit behind those before it; returns its number, from 1.
  std::int64_t schedule(const Request& request);
  // The caller has booked all steps up to this one: they may become durable.
  void acknowledge(std::int64_t step);
  // Returns when all that is acknowledged is durable, and drops the rest. Before what `lanes` asks goes.
  void finish();
  // Returns when commit number `number` is through, or never will be.
  void wait(std::int64_t number) const noexcept;

 private:
  static constexpr std::size_t kMostQueued = 4;
  struct Queued {
    Committer* committer = nullptr;
    Request request;
  };
  static void serve(void* queued);
  void commit(const Request& request);
  // Of what rests in memory. What is not beside NVMe goes by way of `staging_`, an extent at a time.
  void copy_state(int copy);
  Bytes at_a_time(int array) const;
  std::span<std::byte> content(int buffer, Bytes begin, Bytes bytes);
  void put_back(int index, int slot);
  void find_unknown(int array);

  Tier tier_of(int buffer) const { return plan_.resident[static_cast<std::size_t>(buffer)].tier; }

  const DurabilityOptions& options_;
  const Plan& plan_;
  StateExtents& extents_;
  TierMemory& memory_;
  const std::span<std::byte> beside_nvme_;
  const Lanes lanes_;
  CommitLog log_;
  Arena staging_;        // an extent
  CommitRecord record_;  // the last one, or the next while it is made

  std::array<Queued, kMostQueued> queue_;  // by number
  std::int64_t scheduled_ = 0;
  std::atomic<std::int64_t> through_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t acknowledged_ = -1;
  bool ending_ = false;
  std::unique_ptr<Stream> stream_;  // last: its thread uses the others
};

}  // namespace spillway
