// What processes of a run find where they are, and rank 0's plan for all of them: each rank must have room for it. Not here:
// flags, on which ranks agree before (process_team.h).
#pragma once

#include "collectives/message.h"
#include "memory/search/planner.h"
#include "nvme/io_queue.h"
#include "trainer/options/options.h"
#include "trainer/run/process_team.h"

namespace spillway {

// One process, which is one rank.
struct ProcessHere {
  Budgets budgets;  // of the rank, from flags or from what is free here
  int cores = 1;    // that it may use
  int share = 1;    // cores of its host, or of its container, for each rank there
};

// InputError where an --nvme directory is not there.
ProcessHere process_here(const RunOptions& options);
Message message_of(const ProcessHere& process);
ProcessHere process_in(Message& message);

// For rank 0: asks the others, and settles the budgets of `options`: the least of all. Says whose they are, and whom the
// launcher gave fewer cores than its share. Throws an error of another rank, which is named.
void agree(ProcessTeam& team, RunOptions& options, const LogSink& say);

}  // namespace spillway
