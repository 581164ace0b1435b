// One lane's way into the store: operations (lists of segments) are cut into blocks, of which up to `depth` are in flight, across
// the borders of operations. Nothing is allocated after creation. Not here: where a logical offset lies (striping.h), who may
// open the files (store.h).
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "memory/base/types.h"
#include "nvme/io_queue.h"

namespace spillway {

// A piece of an operation: `bytes` at the logical `offset` of the store, from or to `memory`.
// All three are multiples of kExtentAlignment (CHECK): the planner aligns every extent.
struct IoSegment {
  Bytes offset = 0;
  std::byte* memory = nullptr;  // [bytes]
  Bytes bytes = 0;
};

enum class IoTicket : std::uint64_t {};

struct StoreChannelOptions {
  // The arenas that the segments lie in. Any memory works; registered memory costs less CPU time, and huge pages still less: a
  // block on small pages has more pieces than a request to a disk may have, and was measured at half the speed.
  std::span<const std::span<std::byte>> registered;
  int max_operations = 16;  // operations that are started and not yet waited for
  int max_segments = 4096;  // of all those together; a single operation with more fails a CHECK
};

// For one thread at a time; channels of one store are independent of each other. Requests advance only inside these calls. An
// error ends the channel: every later call throws the same IoError (file, offset, bytes, errno). Nothing is left in flight then,
// unless a request hangs beyond the time-out, which the error says.
class StoreChannel {
 public:
  ~StoreChannel();
  StoreChannel(StoreChannel&&) noexcept;
  StoreChannel& operator=(StoreChannel&&) noexcept;

  // Starts an operation behind those started before. Returns at once if there is room for it, else as soon as there is. The
  // segments are copied; their memory must stay until wait() has returned. Operations complete in any order: two that touch the
  // same bytes of the store, one of them writing, must not be in flight together.
  IoTicket start(IoDirection direction, std::span<const IoSegment> segments);
  // Advances what can be advanced without waiting, or waits until `limit` for something to complete. Returns true if the
  // operation is complete (wait() is still due, and returns at once).
  bool poll(IoTicket ticket, std::chrono::microseconds limit = std::chrono::microseconds(0));
  // Returns when the operation is complete: data that was read is in memory, data that was written is with the device (durable
  // after sync()). Every ticket must be waited for exactly once, in any order.
  void wait(IoTicket ticket);
  // start() and wait().
  void read(std::span<const IoSegment> segments);
  void write(std::span<const IoSegment> segments);
  // Makes every write whose wait() has returned, of any channel of the store, survive a power failure.
  void sync();

  IoQueueKind kind() const noexcept;

 private:
  friend class Store;
  struct Impl;
  explicit StoreChannel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway
