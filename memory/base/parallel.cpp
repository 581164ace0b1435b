#include "memory/base/parallel.h"

#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <mutex>
#include <vector>

#include "memory/base/error.h"

#ifdef SPILLWAY_TELLS_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace spillway {
namespace {

// Tells ThreadSanitizer that everything before release() happens before everything behind acquire(). TBB keeps that order, but
// the sanitizer has to be told (CMakeLists.txt says why). Does nothing in other builds.
class Edge {
 public:
  void release() noexcept {
#ifdef SPILLWAY_TELLS_TSAN
    __tsan_release(this);
#endif
  }
  void acquire() noexcept {
#ifdef SPILLWAY_TELLS_TSAN
    __tsan_acquire(this);
#endif
  }
};

}  // namespace

struct ThreadPool::Impl {
  Impl(int threads, PoolPriority priority, int sharers)
      : limit(tbb::global_control::max_allowed_parallelism,
              static_cast<std::size_t>(threads) * static_cast<std::size_t>(sharers)),
        arena(threads, 1, priority == PoolPriority::high ? tbb::task_arena::priority::high : tbb::task_arena::priority::normal),
        workers(static_cast<std::size_t>(threads)) {}
  // The limit is process-wide in TBB, and the least of those that live counts; without it a machine with more cores would wake
  // more workers than the arenas have places.
  tbb::global_control limit;
  tbb::task_arena arena;
  std::vector<Edge> workers;  // [threads] from a body to the worker's next one, which may use the same scratch memory
  std::mutex only;
};

ThreadPool::ThreadPool(int threads, PoolPriority priority, int sharers) : threads_(threads) {
  SPILLWAY_CHECK(threads >= 1, "a pool of {} threads", threads);
  impl_ = std::make_unique<Impl>(threads, priority, sharers);
}
ThreadPool::~ThreadPool() = default;

void ThreadPool::parallel_for(std::int64_t tasks, FunctionRef<void(std::int64_t, int)> body) const {
  if (tasks <= 0) return;
  if (threads_ == 1) {
    // In TBB an arena of one thread has a second place, for work that a caller hands over when it finds the first one taken: its
    // worker would have the number 1, for which there is no scratch memory.
    const std::lock_guard lock(impl_->only);
    for (std::int64_t task = 0; task < tasks; ++task) body(task, 0);
    return;
  }
  Edge began, ended;
  const auto run = [&](std::int64_t begin, std::int64_t end) {
    const int worker = tbb::this_task_arena::current_thread_index();
    Edge& turn = impl_->workers[static_cast<std::size_t>(worker)];
    began.acquire();
    turn.acquire();
    for (std::int64_t task = begin; task < end; ++task) body(task, worker);
    turn.release();
    ended.release();
  };
  began.release();
  impl_->arena.execute([&] {
    if (tasks == 1) return run(0, 1);
    // Grain 1: tasks are coarse by contract, and the cut must be the caller's.
    tbb::parallel_for(
        tbb::blocked_range<std::int64_t>(0, tasks, 1),
        [&](const tbb::blocked_range<std::int64_t>& range) { run(range.begin(), range.end()); }, tbb::simple_partitioner());
  });
  ended.acquire();
}

}  // namespace spillway
