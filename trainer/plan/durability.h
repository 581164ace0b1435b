// Decides whether and how often the steps of a run are made durable, and compares the cost with the cost of a kill.
// Not here: making steps durable (offload/committer.h), the store on disk (trainer/keep/durable_store.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "memory/plan/machine.h"
#include "memory/search/planner.h"
#include "offload/durable_layout.h"
#include "trainer/options/options.h"

namespace spillway {

struct DurabilityPlan {
  DurableLayout layout;
  std::int64_t interval = 1;      // steps between durable steps: a kill loses at most this many
  double copy_s = 0;              // seconds to write the state that rests on the device once
  double bytes_per_step() const;  // bytes of copies and records, besides the writes of the plan's operations
};

// Returns nothing if a kill goes back to the last checkpoint: because --durability says so or, if it is not given, because there
// is no --nvme or no room for two slots of all state. Throws InputError or BudgetError if --durability step was asked for and is
// impossible.
std::optional<DurabilityPlan> durability_of(const RunOptions& options, const PlanRequest& request, const PlanOutcome& outcome,
                                            const UnitGraph& graph, const MachineProfile& machine);

// Most steps that a kill loses without durable steps; nothing if it loses the whole run.
std::optional<std::int64_t> steps_lost_without(const RunOptions& options);

// Describes what a kill loses in either mode, and what is written to limit that loss.
std::string durability_summary(const RunOptions& options, const PlanOutcome& outcome,
                               const std::optional<DurabilityPlan>& durability);

}  // namespace spillway
