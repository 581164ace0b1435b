// The NVMe tier: one logical range of bytes, striped over a preallocated file in each directory given.
// Not here: what lies where in that range (the planner), slots, generations and checksums (commit_record.h).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "memory/machine.h"
#include "memory/types.h"
#include "nvme/io_queue.h"
#include "nvme/store_channel.h"
#include "nvme/store_identity.h"

namespace spillway {

struct StoreDirectory {
  std::string path;
  Bytes cap_bytes = 0;  // 0: what is free there, less a reserve
};

enum class StoreContent : std::uint8_t {
  fresh,     // new files; those of a run that was killed are removed
  nameless,  // new files that have no name from their beginning: however the process ends, their space is free again
  existing,  // the files that keep() left, with the same directories, bytes and stripe
};
enum class DirectIo : std::uint8_t { automatic, off };

struct StoreOptions {
  std::vector<StoreDirectory> directories;  // at least one
  Bytes bytes = 0;                          // the logical size
  StoreContent content = StoreContent::fresh;
  IoQueueKind queue = IoQueueKind::automatic;
  DirectIo direct = DirectIo::automatic;  // automatic: O_DIRECT, or buffered (said once) where the file system refuses it
  Bytes block_bytes = kRequestBytes;      // largest request: smaller or fewer, disks were slower and calls cost more
  Bytes stripe_bytes = 2 * kMiB;  // consecutive bytes in one directory where there are several; less than a block cuts blocks
  int depth = 16;                 // requests in flight, per channel
  std::chrono::milliseconds timeout{120'000};  // after which a request counts as hung
  LogSink log;
  // For tests: wraps the queue of every channel.
  std::function<std::unique_ptr<IoQueue>(std::unique_ptr<IoQueue>)> decorate;
  // A store that outlives its process: store_id, whose it is and the places of its records, the rest is filled in where it is
  // made. What is opened must have it, but for whose it is: that is then what is said here.
  std::optional<StoreIdentity> identity;
  std::vector<std::uint64_t> orphans;  // store_ids of stores that nobody will go on with, whose files a fresh one may remove
};

// Where a logical offset lies.
struct StorePlace {
  std::string file;
  Bytes offset = 0;
};

struct StoreTraffic {
  Bytes read_bytes = 0;
  Bytes written_bytes = 0;
};

// How many bytes a store in these directories could have: free space (files that a killed run left count as free) or caps,
// whichever is less. Throws as Store does where a directory is missing or not writable.
Bytes store_capacity(std::span<const StoreDirectory> directories, Bytes stripe_bytes = StoreOptions{}.stripe_bytes);

// The directories are locked for this process while the store lives. Fresh files go when it is destroyed, unless keep() was
// called; existing ones stay. What a killed process leaves is reclaimed by the next fresh store there; kept files and
// stores that have an identity are not (IoError). Channels must be destroyed before the store.
class Store {
 public:
  // Throws InputError (a directory that is missing or named twice), BudgetError (caps too small for `bytes`), or IoError (in use
  // by another process, not writable, read-only, full): each names the directory, and nothing is left behind.
  explicit Store(StoreOptions options);
  ~Store();
  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;

  // A channel for one lane. Not while another thread opens one.
  StoreChannel open_channel(const StoreChannelOptions& options);
  // The files stay when the store is destroyed.
  void keep() noexcept;
  // The files go when the store is destroyed, existing ones, too.
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
