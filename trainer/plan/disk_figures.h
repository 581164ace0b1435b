// What a run takes of disks and what it wears of them: the store on NVMe, the checkpoints of --save, the bytes written a step.
// Not here: what is read and written when (plan_figures.h), whether the directories have the room (prepared_run.h).
#pragma once

#include <cstdint>
#include <string>

#include "trainer/plan/plan_figures.h"
#include "trainer/plan/planned_run.h"

namespace spillway {

struct DiskFigures {
  Bytes nvme_bytes = 0;           // in the directories of --nvme together while the run lasts, of all ranks
  Bytes checkpoint_bytes = 0;     // of one checkpoint
  Bytes export_bytes = 0;         // of its weights, in the type that the run computes with
  std::int64_t checkpoints = 0;   // in --save at the same time, at most: one that is written comes before one that goes
  double written_bytes = 0;       // to NVMe, a step, of all ranks: state, what spills, and what makes steps durable
  double checkpointed_bytes = 0;  // to --save, a step
};

// Of a run whose plan fits.
DiskFigures disk_figures_of(const PlannedRun& run, const PreparedModel& model, const RunOptions& options,
                            const PlanFigures& figures);

// Drives are rated in these: 10^12 bytes.
double terabytes_in_1000_steps(double bytes_per_step);

// Steps until a drive has been written as often as it is rated for, where the directories are a drive each. Infinite where
// nothing is written.
double steps_of_rating(const DiskFigures& disk, Bytes rated_bytes, std::size_t directories);

// "0.13 TB": few digits, but never none of a little.
std::string rounded_terabytes(double terabytes);

// In words: the space, and the wear, with the steps that a drive of --nvme-tbw lasts.
std::string disk_words(const DiskFigures& disk, const RunOptions& options);
std::string wear_words(const DiskFigures& disk, double step_s, const RunOptions& options);

}  // namespace spillway
