// Which device of this machine a run takes, and the device itself.
// Not here: what a device is (offload/device.h), machines that are only planned for (profile_file.h).
#pragma once

#include <memory>

#include "memory/chain.h"
#include "memory/parallel.h"
#include "nvme/io_queue.h"
#include "offload/device.h"
#include "trainer/options/resolve_options.h"

namespace spillway {

// Makes of --device what is here: `auto` is the first GPU where there is one, else the CPU; and where a GPU is taken, notes it in
// RunOptions::gpu with the memory that is free. A run that is loaded and was on a GPU goes on on the CPU where there is none now.
// InputError where a GPU is asked for and cannot be had: why, and what to do. `say` is told which GPU it is, and what changes.
void settle_device(ResolvedOptions& resolved, const LogSink& say);

// That device. The pool must outlive it.
std::unique_ptr<Device> open_device(const RunOptions& options, const ThreadPool& pool);

}  // namespace spillway
