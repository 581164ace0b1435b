// Brings bytes from rank to rank, and knows nothing of what they mean: the side of collectives that another kind of link
// replaces. Not here: what is gathered and added (communicator.h).
//
// Protocol. Every rank makes the same calls in the same order, whatever its data; only the ranks named in a call take part in it,
// and a rank that names another is named by it. All calls of one rank come from one thread. A call returns once this rank's bytes
// may be written again. After abort() every call, also one that waits, throws an AbortedError.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "memory/base/error.h"
#include "memory/base/types.h"

namespace spillway {

// Thrown by whoever waits for ranks that will not come; the reason is that of the rank that failed.
struct AbortedError : Error {
  explicit AbortedError(const std::string& reason) : Error(kExitIo, reason, "") {}
};

struct Send {
  int to = 0;
  const std::byte* data = nullptr;
  Bytes bytes = 0;
};
struct Receive {
  int from = 0;
  std::byte* data = nullptr;
  Bytes bytes = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  // Sends and receives all of these together; at most one message of each kind between two ranks. On return what was to be
  // received is here. A message of another size than its receiver expects is our bug.
  virtual void exchange(std::span<const Send> sends, std::span<const Receive> receives) = 0;

  // Ranks that share an address space lend each other their bytes: this returns the addresses of the peers' bytes, [peers], in
  // the order of `peers`. All may be read until take_back(), which returns once all peers have come to it. The result is empty
  // for ranks that share none: then nothing is lent, and there is no take_back().
  virtual std::span<const std::byte* const> lend(std::span<const int> /*peers*/, const std::byte* /*mine*/) { return {}; }
  virtual void take_back(std::span<const int> /*peers*/) {}

  // A rank for whose bytes a call waits now; -1: none, or nobody knows. From any thread.
  virtual int waits_for() const { return -1; }

  // Ends all calls, now and later, on all ranks. From any thread; the first reason stays.
  virtual void abort(const std::string& reason) noexcept = 0;
};

}  // namespace spillway
