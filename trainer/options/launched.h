// The options of a run whose ranks a launcher started: how many there are is the launcher's to say.
// Not here: reading the environment (trainer/host/launch.h).
#pragma once

#include "trainer/host/launch.h"
#include "trainer/options/options.h"
#include "trainer/options/raw_flags.h"

namespace spillway {

// Gives the flags the launcher's number of ranks. InputError where another was typed.
void take_ranks_of(const Launch& launch, RawFlags& flags);
// Notes the launch in the options, and refuses what its processes cannot do yet.
void take_launch(const Launch& launch, RunOptions& options);
// Once the device is settled: InputError where these ranks cannot talk by --collectives.
void check_collectives(const RunOptions& options);

}  // namespace spillway
