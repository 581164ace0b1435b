// The bytes that a run may take on each tier: from flags, or from the memory of its machine.
// Not here: the use of budgets (memory/search/planner.h).
#pragma once

#include "memory/plan/machine.h"
#include "memory/search/planner.h"
#include "trainer/options/options.h"
#include "trainer/plan/prepared_model.h"

namespace spillway {

// Budgets from flags, or else from this machine's free memory and disk. Looks at the directories but creates nothing; does not
// look at them if the run is only planned and each directory has a size.
Budgets budgets_for(const RunOptions& options, Where where = Where::here);

// Budgets on a known machine other than this one: its device memory, and the sizes of --nvme, whose directories need not exist.
Budgets budgets_of(const MachineProfile& machine, const RunOptions& options);

// The value of a tier's flag for `of_rank` bytes on each rank: --device-memory is for each rank, the other tiers are shared by
// all ranks.
inline Bytes of_flag(Tier tier, Bytes of_rank, int ranks) { return of_rank * (tier == Tier::device ? 1 : ranks); }

// Returns true if the run is planned for a machine that is not this one, or need not be.
bool is_elsewhere(const RunOptions& options, const MachineProfile& machine);

// The budgets of one rank, on a known machine by its profile, else on this machine. Ranks of a host share its memory and
// directories.
Budgets budgets_of_run(const RunOptions& options, const MachineProfile& machine, Where where);

}  // namespace spillway
