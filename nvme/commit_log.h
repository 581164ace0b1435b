// Makes steps durable: data first, then the record that names them, in turn to one of two places, so that a cut at any instant
// leaves the old record or the new one. Not here: what is in a record (commit_record.h), when a step's data is complete.
#pragma once

#include <memory>
#include <optional>

#include "memory/arena.h"
#include "nvme/commit_record.h"
#include "nvme/store.h"

namespace spillway {

class CommitLog {
 public:
  // `identity` is that of the store, which must outlive the log. `memory` is what write() will be given, as for a channel.
  CommitLog(Store& store, const StoreIdentity& identity, std::span<const std::span<std::byte>> memory = {});

  // The newest record of the store; nothing where none was ever written. IoError where there are only damaged ones.
  std::optional<CommitRecord> newest();

  // Array contents that rest elsewhere, written on behalf of a record to come; with the drive on return.
  void write(std::span<const IoSegment> segments) { channel_.write(segments); }
  void read(std::span<const IoSegment> segments) { channel_.read(segments); }

  // Every write to the store that is complete, and then the record, survive a power failure once this returns. Allocates nothing.
  void commit(const CommitRecord& record);

 private:
  Store& store_;
  StoreIdentity identity_;
  Arena staging_;  // [place_bytes]
  StoreChannel channel_;
};

}  // namespace spillway
