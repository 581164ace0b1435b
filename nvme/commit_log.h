// Makes steps durable: first the data, then the record that names it. Records go to two places in turn, so that a cut at any
// instant leaves the old record or the new one. Not here: what is in a record (commit_record.h), when a step's data is complete.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "memory/runtime/arena.h"
#include "nvme/commit_record.h"
#include "nvme/store.h"

namespace spillway {

class CommitLog {
 public:
  // `identity` is that of the store, which must outlive the log. `memory` is the memory that write() will be given, as for a
  // channel.
  CommitLog(Store& store, const StoreIdentity& identity, std::span<const std::span<std::byte>> memory = {});

  // The records of the store, the newest first; none if none was ever written. Throws IoError if there are only damaged ones.
  std::vector<CommitRecord> records();
  std::optional<CommitRecord> newest();

  // Erases a record that is newer than this one; there is at most one. On return that survives a power failure.
  void erase_newer_than(const CommitRecord& record);

  // Writes array contents that rest elsewhere, on behalf of a record to come. On return they are with the drive.
  void write(std::span<const IoSegment> segments) { channel_.write(segments); }
  void read(std::span<const IoSegment> segments) { channel_.read(segments); }

  // Once this returns, every complete write to the store, and then the record, survive a power failure. Allocates nothing.
  void commit(const CommitRecord& record);

 private:
  Store& store_;
  StoreIdentity identity_;
  Arena staging_;  // [place_bytes]
  StoreChannel channel_;
};

}  // namespace spillway
