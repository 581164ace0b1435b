// A queue of block requests to a few files: submit, then collect completions in whatever order they come.
// There are two implementations: io_uring (registered files and memory), and, where that is refused, a pool of threads that call
// pread and pwrite. Not here: which file holds what (store.h), and finishing requests that came back short or interrupted
// (store_channel.h): results are handed up.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "memory/base/types.h"

namespace spillway {

// sync: what was written to the file and is complete survives a power failure.
enum class IoDirection : std::uint8_t { read, write, sync };
enum class IoQueueKind : std::uint8_t { automatic, io_uring, threads };
constexpr std::string_view name_of(IoDirection direction) {
  return direction == IoDirection::read ? "read" : direction == IoDirection::write ? "write" : "sync";
}
constexpr std::string_view name_of(IoQueueKind kind) {
  return kind == IoQueueKind::automatic ? "auto" : kind == IoQueueKind::io_uring ? "io_uring" : "threads";
}

// Takes one line that the user should know of. It may be empty. It is called by the thread that runs the function it was given
// to.
using LogSink = std::function<void(std::string_view message)>;

struct IoRequest {
  IoDirection direction = IoDirection::read;
  int file = 0;  // index into IoQueueOptions::files
  Bytes offset = 0;
  std::byte* memory = nullptr;  // [bytes]; only read from by a write; must live until the completion is collected
  Bytes bytes = 0;              // at most 1 GiB; 0 for a sync
  std::uint64_t tag = 0;        // comes back with the completion
};

struct IoCompletion {
  std::uint64_t tag = 0;
  Bytes result = 0;  // bytes moved, which may be fewer than asked; or -errno
};

// For one thread at a time. At most depth() requests may be in flight.
class IoQueue {
 public:
  IoQueue() = default;
  IoQueue(const IoQueue&) = delete;
  IoQueue& operator=(const IoQueue&) = delete;
  // Waits a few seconds for requests in flight, whose memory must still be there; logs those that hang.
  virtual ~IoQueue() = default;

  // Starts the requests and returns without waiting for any. A request that cannot be started completes with its errno.
  virtual void submit(std::span<const IoRequest> requests) = 0;
  // Collects up to completions.size() completions and returns how many; waits for the first one until `timeout`, then returns 0.
  // A timeout of zero only looks.
  virtual int wait(std::span<IoCompletion> completions, std::chrono::microseconds timeout) = 0;
  virtual int depth() const noexcept = 0;
  virtual IoQueueKind kind() const noexcept = 0;
};

struct IoQueueOptions {
  IoQueueKind kind = IoQueueKind::automatic;
  int depth = 16;
  std::span<const int> files;  // open descriptors, which must outlive the queue
  std::span<const std::span<std::byte>>
      registered;  // memory that most requests lie in, registered with the kernel where it permits
  LogSink log;
};

// `automatic` takes io_uring, or threads if the system refuses it, and says so by the log sink. Throws IoError if io_uring is
// asked for by name and refused, or if the system starts fewer threads than `depth`. Memory that cannot be registered (the limit
// on locked memory) only costs some CPU time; nothing is said about it.
std::unique_ptr<IoQueue> make_io_queue(const IoQueueOptions& options);

}  // namespace spillway
