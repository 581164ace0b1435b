// The NVMe tier: one logical range of bytes, striped over a preallocated file in each directory given.
// Not here: what lies where in that range (the planner); slots, generations and checksums (commit_record.h).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "memory/base/types.h"
#include "memory/plan/machine.h"
#include "nvme/io_queue.h"
#include "nvme/store_channel.h"
#include "nvme/store_identity.h"

namespace spillway {

struct StoreDirectory {
  std::string path;
  Bytes cap_bytes = 0;  // 0: the free space there, less a reserve
};

enum class StoreContent : std::uint8_t {
  fresh,     // new files; those of a run that was killed are removed
  nameless,  // new files that have no name from the beginning: however the process ends, their space is free again
  existing,  // the files that keep() left, with the same directories, bytes and stripe
};
enum class DirectIo : std::uint8_t { automatic, off };

struct StoreOptions {
  std::vector<StoreDirectory> directories;  // at least one
  Bytes bytes = 0;                          // the logical size
  StoreContent content = StoreContent::fresh;
  IoQueueKind queue = IoQueueKind::automatic;
  DirectIo direct = DirectIo::automatic;  // automatic: O_DIRECT, or buffered (said once) where the file system refuses it
  Bytes block_bytes = kRequestBytes;      // largest request: with smaller or fewer ones, disks were slower and calls cost more
  Bytes stripe_bytes = 2 * kMiB;          // consecutive bytes in one of several directories; less than a block cuts blocks
  int depth = 16;                         // requests in flight, per channel
  std::chrono::milliseconds timeout{120'000};  // after which a request counts as hung
  LogSink log;
  // For tests: wraps the queue of every channel.
  std::function<std::unique_ptr<IoQueue>(std::unique_ptr<IoQueue>)> decorate;
  // For a store that outlives its process. The caller fills in store_id, the run that it belongs to and the places of its
  // records; the store fills in the rest. An existing store must have the same identity, except for the run, which is set to the
  // one given here.
  std::optional<StoreIdentity> identity;
  std::vector<std::uint64_t> orphans;  // store_ids of stores that no run will continue, whose files a fresh one may remove
};

// The file and offset at which a logical offset lies.
struct StorePlace {
  std::string file;
  Bytes offset = 0;
};

struct StoreTraffic {
  Bytes read_bytes = 0;
  Bytes written_bytes = 0;
};

// Bytes that a store in these directories could have: per directory, free space (files that a killed run left count as free) or
// the cap, whichever is less. Throws, like Store, if a directory is missing or not writable.
Bytes store_capacity(std::span<const StoreDirectory> directories, Bytes stripe_bytes = StoreOptions{}.stripe_bytes);

// The directories are locked for this process while the store lives. Fresh files are removed when it is destroyed, unless keep()
// was called; existing ones stay. The next fresh store in a directory reclaims what a killed process left there, but not kept
// files or stores that have an identity (IoError). Channels must be destroyed before the store.
class Store {
 public:
  // Throws InputError (a directory that is missing or named twice), BudgetError (caps too small for `bytes`), or IoError (in use
  // by another process, not writable, read-only, full). Each names the directory, and nothing is left behind.
  explicit Store(StoreOptions options);
  ~Store();
  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;

  // Opens a channel for one lane. No two threads may do this at the same time.
  StoreChannel open_channel(const StoreChannelOptions& options);
  // The files stay when the store is destroyed.
  void keep() noexcept;
  // The files are removed when the store is destroyed, existing ones too.
  void discard() noexcept;

  Bytes bytes() const noexcept;
  StorePlace place_of(Bytes offset) const;
  // All channels' requests since creation; from any thread.
  StoreTraffic traffic() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway
