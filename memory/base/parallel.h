// Pools of threads on which kernels and the host optimizer run the tasks that they cut their work into. Pools share the threads
// of the process.
// Results never depend on the number of threads: a caller cuts by shape alone and each task writes its own outputs.
// Not here: lanes, which are threads of their own that mostly wait (offload/).
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace spillway {

// A borrowed callable: valid only while the callable it was made from lives.
template <typename Signature>
class FunctionRef;
template <typename R, typename... Args>
class FunctionRef<R(Args...)> {
 public:
  template <typename F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
  FunctionRef(F&& f)  // NOLINT: implicit by design, like a reference
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* object, Args... args) -> R { return (*static_cast<std::remove_reference_t<F>*>(object))(args...); }) {}
  R operator()(Args... args) const { return call_(object_, args...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

// Threads take the tasks of a pool with high priority first.
enum class PoolPriority : std::uint8_t { normal, high };

class ThreadPool {
 public:
  // threads >= 1; the calling thread counts as one of them. `sharers`: pools of as many threads each that work at the same time,
  // this one among them: one for each rank of a process.
  explicit ThreadPool(int threads, PoolPriority priority = PoolPriority::normal, int sharers = 1);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const noexcept { return threads_; }

  // Runs body(task, worker) for every task in [0, tasks), in any order, on the pool and the calling thread; all are complete
  // when it returns. `worker` is in [0, threads()): no two bodies with the same worker run at the same time, so that it may index
  // scratch memory. May be called from several threads at once; a caller that finds all places of the pool taken waits for one.
  // Bodies must not call parallel_for, block, or throw.
  void parallel_for(std::int64_t tasks, FunctionRef<void(std::int64_t task, int worker)> body) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  int threads_;
};

}  // namespace spillway
