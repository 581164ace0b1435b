// Chooses the device of this machine for a run, and opens it.
// Not here: the device itself (offload/device.h), machines that are only planned for (profile_file.h).
#pragma once

#include <memory>

#include "memory/base/parallel.h"
#include "memory/plan/chain.h"
#include "nvme/io_queue.h"
#include "offload/device.h"
#include "trainer/options/resolve_options.h"

namespace spillway {

// Resolves --device for this machine: `auto` becomes the first GPUs if there is one, else the CPU. If GPUs are chosen, notes them
// in RunOptions::gpu, one for each rank of this host, with their free memory. A loaded run that was on a GPU goes on on the CPU
// if there is no GPU now. Throws InputError if a GPU was asked for and cannot be had; the message says why and what to do. `say`
// gets the name of the GPU and any change of options.
void settle_device(ResolvedOptions& resolved, const LogSink& say);

// Opens the device of a rank. The pool must outlive it.
std::unique_ptr<Device> open_device(const RunOptions& options, const ThreadPool& pool, int rank = 0);

}  // namespace spillway
