// Holds operations to their buffers: bytes of the device that belong to no buffer in use are poisoned under AddressSanitizer, and
// hold NaNs in debug builds. A kernel or transfer that touches them ends the program, or spoils its result. Other builds do none
// of this.
// Not here: whether a plan's buffers and waits are right (memory/passes/validate.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <span>
#include <vector>

#include "memory/plan/plan.h"
#include "memory/runtime/poison.h"

namespace spillway {

#ifdef NDEBUG
inline constexpr bool kGuardsBuffers = kPoisons;
#else
inline constexpr bool kGuardsBuffers = true;
#endif

// The guard of one program. Several lanes may call it at the same time, as the plan's waits let them: among operations that share
// a byte one writes it first and the others wait for that one, and the byte's next user waits for them all.
class BufferGuard {
 public:
  // Both must outlive this.
  BufferGuard(const Program& program, const Plan& plan, std::span<std::byte> device);

  void begin(int op) const;  // before it touches anything
  void end(int op);          // after its last touch, before those that wait for it are told

  // Releases all bytes that are not resident, as end() does; to be called before the first operation of any program.
  static void release_all(const Plan& plan, std::span<std::byte> device);

 private:
  // A range of a buffer whose bytes are all used by the same operations.
  struct Range {
    Bytes begin = 0, bytes = 0;
    int users = 0;
    std::atomic<int> left{0};  // users of this passage through the program that have not ended
  };
  const std::span<std::byte> device_;
  std::vector<Range> ranges_;
  std::vector<std::vector<int>> ranges_of_;  // [operations]
};

}  // namespace spillway
