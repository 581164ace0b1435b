// IoQueue by io_uring. See io_queue.h; made by make_io_queue().
#pragma once

#include <memory>

#include "nvme/io_queue.h"

namespace spillway {

// Returns null, and the errno in `refused`, if the system does not permit io_uring or is too old for its plain reads and writes.
std::unique_ptr<IoQueue> make_io_uring_queue(const IoQueueOptions& options, int& refused);

}  // namespace spillway
