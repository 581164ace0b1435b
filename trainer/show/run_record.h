// Reads a run from its directory: the plan that it followed, the log of its steps, the recorded timeline of its last one.
// Not here: reports and traces (run_report.h, trace_file.h), writing the directory (trainer/keep/run_directory.h), going on with
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "memory/plan/plan.h"
#include "memory/plan/timeline.h"
#include "trainer/options/options.h"
#include "trainer/plan/tier_picture.h"
#include "trainer/show/log.h"

namespace spillway {

// An operation of the plan, in one turn.
struct RecordedOperation {
  int id = 0;            // in the plan
  std::string kind, of;  // `of`: its unit or block; may be empty
  Lane lane = Lane::compute;
  int micro_batch = -1;
  Bytes bytes = 0;
  std::vector<Wait> waits;  // `op` is an index in RunRecord::operations
  Span planned;
  Span recorded;  // if the run was timed
};

struct RunRecord {
  std::string directory;
  RunOptions options;
  std::int64_t parameters = 0;
  double tokens_per_step = 0;
  double planned_step_s = 0, bound_s = 0;
  Lane binding_lane = Lane::compute;
  By<Tier, Bytes> budget, planned_peak;
  Bytes planned_read_bytes = 0, planned_written_bytes = 0;  // in a step
  int turns = 1;                                            // in a step
  std::vector<RecordedOperation> operations;                // of each turn whose times are kept
  std::optional<StepUse> use;                               // none if the plan's version did not record it
  std::optional<std::int64_t> timed_step;                   // none if the run has not saved a timeline yet
  std::vector<StepRecord> log;                              // at least one step
};

// Throws an InputError with the file and the entry if a file is missing, damaged or does not go with the others.
RunRecord read_run(const std::string& directory);

}  // namespace spillway
