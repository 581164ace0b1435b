#include "nvme/io_queue.h"

#include <system_error>

#include "memory/base/error.h"
#include "nvme/io_uring_queue.h"
#include "nvme/thread_queue.h"

namespace spillway {

std::unique_ptr<IoQueue> make_io_queue(const IoQueueOptions& options) {
  SPILLWAY_CHECK(options.depth >= 1 && options.depth <= 4096, "queue of depth {}", options.depth);
  SPILLWAY_CHECK(!options.files.empty(), "a queue without files");
  if (options.kind == IoQueueKind::threads) return make_thread_queue(options);
  int refused = 0;
  if (auto queue = make_io_uring_queue(options, refused)) return queue;
  const std::string reason = std::generic_category().message(refused);
  if (options.kind == IoQueueKind::io_uring) {
    throw IoError(fmt::format("io_uring is refused by this system: {} (errno {})", reason, refused),
                  "Leave the choice of queue open: threads that read and write do the same work.");
  }
  if (options.log)
    options.log(fmt::format("io_uring is refused by this system ({}): NVMe goes through {} threads", reason, options.depth));
  return make_thread_queue(options);
}

}  // namespace spillway
