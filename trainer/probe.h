// Measures this machine for the planner, and keeps the profile for the next run.
// Not here: what the numbers mean (memory/machine.h).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "memory/machine.h"
#include "memory/parallel.h"
#include "trainer/options.h"

namespace spillway {

// Measures matrix products, attention, passes over memory, the host optimizer and the given directories, in a few seconds and less
// than 64 MiB of memory beside what the machine gives back.
MachineProfile quick_probe(const ThreadPool& pool, const std::vector<NvmeDirectory>& directories);

// The profile of `--profile`, else the one cached for this host, number of threads and directories, else a quick probe, whose
// result is cached (in $XDG_CACHE_HOME/spillway or ~/.cache/spillway; a cache that cannot be written is no error).
MachineProfile profile_for(const RunOptions& options, const ThreadPool& pool);

// JSON, plain: name, threads, rates by the names of the struct. InputError for rates that are missing, not positive or not finite.
MachineProfile profile_from_json(const std::string& text, const std::string& file);
std::string to_json_text(const MachineProfile& profile);

}  // namespace spillway
