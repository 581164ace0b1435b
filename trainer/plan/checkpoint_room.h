// Checks, before the first step, that the directory of --save has room for the checkpoints that a run will keep.
// Not here: the size of a checkpoint (disk_figures.h), the room of --nvme (budgets.h).
#pragma once

#include <cstdint>
#include <string>

#include "memory/base/types.h"
#include "trainer/options/options.h"
#include "trainer/plan/planned_run.h"

namespace spillway {

struct CheckpointRoom {
  Bytes needed = 0;  // most bytes needed at a time, besides those there already; includes the store if it is on the same disk
  Bytes free = 0;    // on the disk of --save
  Bytes of_checkpoint = 0;
  std::int64_t at_once = 0;  // checkpoints yet to be written that exist at the same time
  bool is_known = false;     // the file system tells its free space, and the run saves checkpoints
  bool fits() const noexcept { return !is_known || needed <= free; }
};

// For a run that fits, from `step` on.
CheckpointRoom checkpoint_room(const PlannedRun& run, const PreparedModel& model, const RunOptions& options, std::int64_t step);

// Throws BudgetError if the room is too small.
void require_room_for_checkpoints(const PlannedRun& run, const PreparedModel& model, const RunOptions& options,
                                  std::int64_t step);

// Free bytes of the file system that has `path`, or will have it; -1 if it does not tell.
Bytes free_space_at(const std::string& path);

}  // namespace spillway
