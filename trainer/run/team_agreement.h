// What processes of a run find where they are: all must have the same model, and room for rank 0's plan. Not here: flags, on
// which ranks agree before (process_team.h).
#pragma once

#include "collectives/hello.h"
#include "collectives/message.h"
#include "memory/search/planner.h"
#include "nvme/io_queue.h"
#include "trainer/options/options.h"
#include "trainer/run/process_team.h"

namespace spillway {

// One process, which is one rank.
struct ProcessHere {
  AgreedFlags model;  // what determines what its files compute, by name
  Budgets budgets;    // of the rank, from flags or from what is free here
  int cores = 1;      // that it may use
  int share = 1;      // cores of its host, or of its container, for each rank there
};

// InputError where the model's configuration, the adapter's, or an --nvme directory is not there.
ProcessHere process_here(const RunOptions& options);
Message message_of(const ProcessHere& process);
ProcessHere process_in(Message& message);

// For rank 0: asks the others, refuses one whose model is another, and settles the budgets of `options`: the least of all. Says
// whose they are, and whom the launcher gave fewer cores than its share. Throws an error of another rank, which is named.
void agree(ProcessTeam& team, RunOptions& options, const LogSink& say);

}  // namespace spillway
