// Whether and how often the steps of a run are made durable, and what that costs beside what a kill would.
// Not here: making them durable (offload/committer.h), the store on disk (trainer/keep/durable_store.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "memory/machine.h"
#include "memory/search/planner.h"
#include "offload/durable_layout.h"
#include "trainer/options/options.h"

namespace spillway {

struct DurabilityPlan {
  DurableLayout layout;
  std::int64_t interval = 1;      // of steps: so many a kill costs at most
  double copy_s = 0;              // writing the state that rests on the device, once
  double bytes_per_step() const;  // of copies and records, beside what the plan's operations write
};

// Nothing where a kill goes back to the last checkpoint: as --durability says, or, where it does not say, where there is no
// --nvme or no room for two slots of everything. InputError and BudgetError where --durability step was asked for and cannot be.
std::optional<DurabilityPlan> durability_of(const RunOptions& options, const PlanRequest& request, const PlanOutcome& outcome,
                                            const UnitGraph& graph, const MachineProfile& machine);

// What a kill costs without, at most, in steps; nothing where all of the run is lost.
std::optional<std::int64_t> steps_lost_without(const RunOptions& options);

// What a kill costs in either mode, and what is written so that it costs no more.
std::string durability_summary(const RunOptions& options, const PlanOutcome& outcome,
                               const std::optional<DurabilityPlan>& durability);

}  // namespace spillway
