// Whether and how often the steps of a run are made durable, and what that costs beside what a kill would.
// Not here: making them durable (offload/committer.h), the store on disk (durable_store.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "offload/durable_layout.h"
#include "trainer/prepared_run.h"

namespace spillway {

struct DurabilityPlan {
  DurableLayout layout;
  std::int64_t interval = 1;  // of steps
  double copy_s = 0;          // writing the state that rests on the device, once
};

// Nothing where a kill goes back to the last checkpoint: as --durability says; where there is no --save, no run to go on with.
// InputError and BudgetError where --durability step was asked for and cannot be.
std::optional<DurabilityPlan> durability_of(const RunOptions& options, const PlannedRun& run, const PreparedModel& model);

// One line: what a kill costs, and what is written so that it costs no more.
std::string durability_summary(const RunOptions& options, const PlannedRun& run, const std::optional<DurabilityPlan>& durability);

std::vector<std::string> paths_of(const std::vector<NvmeDirectory>& directories);

}  // namespace spillway
