// Decides when an emulated device does the work of its streams: as late as it may, or ahead of others, as a seed says.
// Not here: what the work is, and memory (runtime.h).
//
// Work is not done when it is enqueued. A wait for a stream or an event does the work that it needs, and no more: the work before
// it there, and on other streams the work before the events that it waits for. With a seed other than 0 some streams run ahead of
// that, all the way or now and then, as far as their own waits let them. So if a wait is missing, there is a seed by which the
// work to wait for is done last, and one by which the work that should come after it is done first.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

namespace spillway::simt {

class LazyDevice {
 public:
  struct Stream;
  // The number of recordings of an event, and how many of them its stream has passed.
  struct Moments {
    Stream* stream = nullptr;
    std::uint64_t recorded = 0, passed = 0;
  };
  // Work of a kind other than `host` does not block, and what it throws ends the device.
  struct Work {
    enum class Kind : std::uint8_t { device, host, record, wait };
    Kind kind = Kind::device;
    std::function<void()> run = {};         // device, host
    std::shared_ptr<Moments> moments = {};  // record, wait
    std::uint64_t which = 0;                // of the moments
  };
  struct Stream {
    std::deque<Work> ahead;
    std::uint64_t enqueued = 0, done = 0;
    std::uint64_t haste = 0;  // in eighths: likelihood of going a step ahead of what is needed
    bool is_at_host = false;  // its first work runs on `host`
    std::jthread host;
  };

  explicit LazyDevice(std::uint64_t seed) : seed_(seed), random_state_(seed) {}
  ~LazyDevice();
  LazyDevice(const LazyDevice&) = delete;
  LazyDevice& operator=(const LazyDevice&) = delete;

  Stream* open();
  void enqueue(Stream& stream, std::function<void()> run, Work::Kind kind = Work::Kind::device);
  void record(Stream& stream, const std::shared_ptr<Moments>& moments);
  // Makes the stream wait for what was recorded before this call.
  void wait(Stream& stream, const std::shared_ptr<Moments>& moments);
  // Does all work of the stream. Both functions of this name throw what work has thrown: from then on nothing more is done.
  void finish(Stream& stream);
  // Does the same at a stream's end. It cannot throw: if nobody was told of the error, it prints it.
  void close(Stream& stream) noexcept;
  void finish(const Moments& moments);
  // True if the last recording is passed. Each call does some work for it.
  bool is_passed(const Moments& moments);
  // Calls f while no work is done.
  void at_rest(const std::function<void()>& f);

 private:
  using Lock = std::unique_lock<std::mutex>;

  Lock locked();
  void tell();  // throws
  void push(Stream& stream, Work work);
  // Works until `is_done`, which needs `stream`.
  void finish(Lock& lock, Stream& stream, const std::function<bool()>& is_done);
  bool advance(Stream& stream);  // does a step that the stream needs; false: a host function is running
  void run_ahead();
  static bool can_run(const Stream& stream);
  void perform(Stream& stream);
  std::uint64_t random();

  const std::uint64_t seed_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Stream> streams_;
  std::uint64_t random_state_;
  std::exception_ptr failure_;
  std::atomic<bool> is_told_{false};
};

}  // namespace spillway::simt
