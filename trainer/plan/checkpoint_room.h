// Whether the directory of --save has room for the checkpoints that a run will keep, before it takes a step.
// Not here: how large they are (disk_figures.h), and the room of --nvme (budgets.h).
#pragma once

#include <cstdint>
#include <string>

#include "memory/types.h"
#include "trainer/options/options.h"
#include "trainer/plan/planned_run.h"

namespace spillway {

struct CheckpointRoom {
  Bytes needed = 0;  // at the most at once, beside what is there already; with the store where it is on the same disk
  Bytes free = 0;    // on the disk of --save
  Bytes of_checkpoint = 0;
  std::int64_t at_once = 0;  // checkpoints that are still to be written and are there at once
  bool is_known = false;     // the file system tells its free space, and something is to be saved
  bool fits() const noexcept { return !is_known || needed <= free; }
};

// Of a run that fits, from `step` on.
CheckpointRoom checkpoint_room(const PlannedRun& run, const PreparedModel& model, const RunOptions& options, std::int64_t step);

// BudgetError where it lacks.
void require_room_for_checkpoints(const PlannedRun& run, const PreparedModel& model, const RunOptions& options,
                                  std::int64_t step);

// Free space of the file system that has `path`, or will have it; -1 where it does not tell.
Bytes free_space_at(const std::string& path);

}  // namespace spillway
