// The disk space that a run takes and the wear that it causes: the store on NVMe, the checkpoints of --save, the bytes written in
// each step.
// Not here: the times of reads and writes (plan_figures.h), whether the directories have the room (prepared_run.h).
#pragma once

#include <cstdint>
#include <string>

#include "trainer/plan/plan_figures.h"
#include "trainer/plan/planned_run.h"

namespace spillway {

struct DiskFigures {
  Bytes nvme_bytes = 0;           // in all --nvme directories while the run lasts, for all ranks
  Bytes checkpoint_bytes = 0;     // of one checkpoint
  Bytes export_bytes = 0;         // an export of its weights, in the type that the run computes with
  std::int64_t checkpoints = 0;   // most checkpoints in --save at a time: a new one comes before an old one goes
  double written_bytes = 0;       // to NVMe in each step, by all ranks: state, spilled data, and records for durable steps
  double checkpointed_bytes = 0;  // to --save, averaged over steps
};

// For a run whose plan fits.
DiskFigures disk_figures_of(const PlannedRun& run, const PreparedModel& model, const RunOptions& options,
                            const PlanFigures& figures);

// Terabytes, the unit of drive ratings: 10^12 bytes.
double terabytes_in_1000_steps(double bytes_per_step);

// Number of steps until a drive has taken the writes that it is rated for, if each directory is on a drive of its own. Infinite
// if nothing is written.
double steps_of_rating(const DiskFigures& disk, Bytes rated_bytes, std::size_t directories);

// Few digits, but never 0 for a small amount: "0.13 TB".
std::string rounded_terabytes(double terabytes);

// Describe the disk space, and the wear with the number of steps that a drive of --nvme-tbw lasts.
std::string disk_words(const DiskFigures& disk, const RunOptions& options);
std::string wear_words(const DiskFigures& disk, double step_s, const RunOptions& options);

}  // namespace spillway
