// A program of the plan with addresses: the operations of each lane, resolved once so that a step looks nothing up.
// Not here: running it (executor.h).
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "memory/plan/plan.h"
#include "models/unit_code.h"
#include "offload/buffer_guard.h"
#include "offload/tier_memory.h"

namespace spillway {

struct BoundWait {
  Lane lane;
  std::uint32_t place;  // operations of the lane that must be complete, counted from the beginning of the turn
  bool turn_before;     // `place` counts from the beginning of the turn before
};

struct BoundSegment {
  Bytes nvme_offset[2];  // [slots]
  int buffer;            // index into Plan::resident; -1: the bytes live within a step
  Bytes begin;           // offset in that buffer
  Version version;
  std::byte* memory;
  Bytes bytes;
  // For a read: the turns in which the update, as the first to take the bytes, checks their hashes; in others the lane does.
  TurnSet checked_by_update = 0;
  bool notes_hashes = false;  // for a write: the lane notes the bytes' hashes, as no update does
};

struct BoundCopy {  // with addresses for the runtime's copies
  std::byte* to;
  const std::byte* from;
  Bytes bytes;
};

// A forward or a backward.
struct BoundPass {
  const CallList* calls = nullptr;
  const CallList* calls_before = nullptr;  // the forward that runs again before it, for the saved values; null: none
  std::vector<std::byte*> values;          // of the forward that runs again, then of the pass
  std::vector<Bytes> strides;              // [values] bytes to the value of the strip's next micro-batch
  std::size_t values_before = 0;           // values of the forward that runs again
  std::vector<const std::byte*> weights;
  std::vector<float*> gradients;
  std::byte* workspace = nullptr;
};

// A move from tier to tier.
struct BoundMove {
  std::vector<BoundSegment> segments;  // from and to NVMe
  std::vector<BoundCopy> copies;       // between two memories
};

// The operands of any other operation, by role.
struct BoundOperands {
  std::array<std::byte*, kRoles> at{};  // null where the operation has none
  std::array<std::byte*, kStateKinds> state{};
  std::array<bool, kStateKinds> checks{};  // update: true for arrays read for it whose hashes nobody has checked

  std::byte*& operator[](Role role) { return at[static_cast<std::size_t>(role)]; }
  template <typename T = std::byte>
  T* get(Role role) const {
    return reinterpret_cast<T*>(at[static_cast<std::size_t>(role)]);
  }
};

struct BoundOp {
  const Op* op = nullptr;
  int id = 0;
  std::string name;  // "forward layer 3 mlp": for profilers and errors
  // First element of this rank's part of the operation's block; 0 where ranks have no parts. An update's range counts from here.
  std::int64_t first_element = 0;
  std::vector<BoundWait> waits;
  // End of the highest extent that the operation touches on each tier, for the recorded peak.
  By<Tier, Bytes> end;
  std::variant<BoundOperands, BoundPass, BoundMove> touches;

  const BoundPass& pass() const { return std::get<BoundPass>(touches); }
  const BoundMove& move() const { return std::get<BoundMove>(touches); }
  const BoundOperands& operands() const { return std::get<BoundOperands>(touches); }
};

struct BoundProgram {
  By<Lane, std::vector<BoundOp>> lanes;
  int operations = 0;
  std::unique_ptr<BufferGuard> guard;  // where kGuardsBuffers
};

// For one rank; all arguments must outlive the result. `graph` is that of the units. `evaluates`: the program is a forward of one
// micro-batch.
BoundProgram bind_program(const Plan& plan, const UnitGraph& graph, const Program& program, int rank, const TierMemory& memory,
                          const std::vector<std::shared_ptr<const UnitCode>>& units, bool evaluates);

}  // namespace spillway
