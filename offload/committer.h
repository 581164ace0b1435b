// The work of a commit operation: it copies the state that rests in memory into the store, then writes the record that makes all
// state durable. The plan's waits keep it behind the writes of the step and before anything overwrites them.
// Not here: the order of syncs (nvme/commit_log.h), which state is due (generations.h).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "collectives/transport.h"
#include "memory/runtime/arena.h"
#include "nvme/commit_log.h"
#include "offload/durable_layout.h"
#include "offload/generations.h"
#include "offload/state_extents.h"
#include "offload/tier_memory.h"

namespace spillway {

struct DurabilityOptions {           // of one rank
  StoreIdentity identity;            // of the rank's store
  DurableLayout layout;              // of the executor's plan
  std::int64_t interval = 1;         // one step in so many is made durable
  std::optional<CommitRecord> from;  // record of the state in the store to go on with; it lies_as() the layout
};

class Committer {
 public:
  // All must outlive the committer. `seed` and `model` are for the record. `others`: by it ranks tell each other that their
  // records are written; null for an only rank.
  Committer(const DurabilityOptions& options, const Plan& plan, std::uint64_t seed, std::uint64_t model, Store& store,
            StateExtents& extents, TierMemory& memory, Transport* others);
  Committer(const Committer&) = delete;
  Committer& operator=(const Committer&) = delete;

  // Restores the state of options.from: its hashes, and from the store the arrays that rest in memory.
  Generation resume();
  // Waits until the step is acknowledged; false at the end, when it will not be.
  bool wait_for_acknowledgement(std::int64_t step);
  // Commits the state of an acknowledged step. Returns when it is durable, on all ranks. Throws AbortedError where another rank
  // cannot. So the newest records of two ranks are at most one step apart, and the step that all have is whole in all stores.
  void commit(const Generation& state);
  // Called from another thread. The caller has come back after it was given this step, so it has made use of all steps up to it,
  // and they may become durable.
  void acknowledge(std::int64_t step);
  void end();  // nothing more will be acknowledged

 private:
  // Copies the state that rests in memory. State that is not beside NVMe goes by way of `staging_`, an extent at a time.
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
  Arena staging_;  // one extent; declared before the log, whose destructor waits for requests that still use it
  CommitLog log_;
  CommitRecord record_;  // the last record, or the next one while it is made
  Transport* const others_;
  std::vector<Send> sends_;        // [other ranks] empty messages
  std::vector<Receive> receives_;  // [other ranks]

  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t acknowledged_ = -1;
  bool is_over_ = false;
};

}  // namespace spillway
