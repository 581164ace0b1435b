// A program of the plan with its addresses: what each lane runs, resolved once so that a step looks nothing up.
// Not here: running it (executor.h).
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "memory/plan.h"
#include "models/unit_code.h"
#include "offload/buffer_guard.h"
#include "offload/fetched_rows.h"
#include "offload/lane_progress.h"
#include "offload/tier_memory.h"

namespace spillway {

struct BoundWait {
  Lane lane;
  std::uint32_t place;  // operations of the lane that must be complete, counted from the beginning of the run
  bool step_before;     // place counts from the beginning of the run before
};

// Who sees that the state that was read is what had been written: the update, where that is the first to take it.
enum class CheckedBy : std::uint8_t { lane, update, pending_update };

struct BoundSegment {
  Bytes nvme_offset[2];  // by slot
  int buffer;            // index into Plan::resident; -1: it lives within a step
  Bytes begin;           // in that buffer
  bool two_slots;
  Slot slot;
  std::byte* memory;
  Bytes bytes;
  CheckedBy checked_by = CheckedBy::lane;  // read
};

struct BoundCopy {
  std::byte* to;
  const std::byte* from;
  Bytes bytes;
};

struct BoundOp {
  const Op* op = nullptr;
  int id = 0;
  std::vector<BoundWait> waits;
  // forward, recompute, backward
  const CallList* calls = nullptr;
  std::vector<std::byte*> values;
  std::vector<const std::byte*> weights;
  std::vector<float*> gradients;
  std::byte* workspace = nullptr;
  bool takes_rows = false;  // its lookup, in place of the first block's weights
  // read, write
  std::vector<BoundSegment> segments;
  std::unique_ptr<BoundRows> rows;  // fetch_rows, write_rows
  // upload, download
  std::vector<BoundCopy> copies;
  // Words of control that it reads, in their order.
  std::vector<const std::byte*> control;
  // update, update_rows, update_touched, gradient_add, gradient_finish, finish_rows
  std::array<std::byte*, kStateKinds> state{};
  std::array<bool, kStateKinds> checks{};  // update: what was read for it and nobody has checked
  std::array<std::byte*, 2> gradient{};
  // End of the highest extent of each tier that the operation touches, for the recorded peak.
  std::array<Bytes, kTiers> end{};
};

struct BoundProgram {
  std::array<std::vector<BoundOp>, kLanes> lanes;
  int operations = 0;
  LaneCounts settled;                  // operations that are complete when all state is updated, and where it rests
  std::unique_ptr<BufferGuard> guard;  // where kGuardsBuffers
};

// All must outlive the result. `evaluates`: the program is a forward of one micro-batch.
BoundProgram bind_program(const Plan& plan, const UnitGraph& graph, const Program& program, const TierMemory& memory,
                          const std::vector<std::shared_ptr<const UnitCode>>& units, bool evaluates);

}  // namespace spillway
