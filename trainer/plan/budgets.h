// How many bytes a run may take of each tier: as flags say, or of what its machine has.
// Not here: what is done with them (memory/search/planner.h).
#pragma once

#include "memory/machine.h"
#include "memory/search/planner.h"
#include "trainer/options/options.h"
#include "trainer/plan/prepared_model.h"

namespace spillway {

// Budgets from flags, or from what the machine has to give. Directories are looked at, nothing is created; not where the run is
// only planned and every directory is given with its size.
Budgets budgets_for(const RunOptions& options, Where where = Where::here);

// Of a known machine that is not this one: its own device memory, and the sizes of --nvme, whose directories need not be there.
Budgets budgets_of(const MachineProfile& machine, const RunOptions& options);

// What a tier's flag says of so many bytes for each rank: --device-memory is each one's, the others are shared.
inline Bytes of_flag(Tier tier, Bytes of_rank, int ranks) { return of_rank * (tier == Tier::device ? 1 : ranks); }

// Whether a run is planned for a machine that is not this one, or need not be.
bool is_elsewhere(const RunOptions& options, const MachineProfile& machine);

// What one rank has: of a known machine by its profile, else of this one. Ranks of a host share its memory and its directories.
Budgets budgets_of_run(const RunOptions& options, const MachineProfile& machine, Where where);

}  // namespace spillway
