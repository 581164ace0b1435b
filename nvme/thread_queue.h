// IoQueue by a pool of threads that call pread and pwrite. See io_queue.h; made by make_io_queue().
#pragma once

#include <memory>

#include "nvme/io_queue.h"

namespace spillway {

std::unique_ptr<IoQueue> make_thread_queue(const IoQueueOptions& options);

}  // namespace spillway
