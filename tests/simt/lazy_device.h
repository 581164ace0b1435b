// When an emulated device does what its streams were told to: as late as it may, or ahead of others, as a seed has it.
// Not here: what the work is, and memory (runtime.h).
//
// Nothing is done because it was enqueued. Who waits for a stream or an event has done what that needs, and no more: the work
// before it there, and on other streams what stands before the events that it waits for. With a seed other than 0 some streams
// run ahead of that, all the way or now and then, as far as what they themselves wait for lets them. So whoever forgot a wait
// has, by one seed or another, what he counted on done last, and what should have come after it done first.
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
  // How often an event was recorded, and how many of these its stream has passed.
  struct Moments {
    Stream* stream = nullptr;
    std::uint64_t recorded = 0, passed = 0;
  };
  // Of any other kind than `host`: it does not block, and what it throws ends the device.
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
    std::uint64_t haste = 0;  // in eighths: how likely it goes a step ahead of what is needed
    bool is_at_host = false;  // its first work is under way on `host`
    std::jthread host;
  };

  explicit LazyDevice(std::uint64_t seed) : seed_(seed), random_state_(seed) {}
  ~LazyDevice();
  LazyDevice(const LazyDevice&) = delete;
  LazyDevice& operator=(const LazyDevice&) = delete;

  Stream* open();
  void enqueue(Stream& stream, std::function<void()> run, Work::Kind kind = Work::Kind::device);
  void record(Stream& stream, const std::shared_ptr<Moments>& moments);
  // What was recorded before this call.
  void wait(Stream& stream, const std::shared_ptr<Moments>& moments);
  // Both throw what work has thrown: from then on nothing more is done.
  void finish(Stream& stream);
  // The same at a stream's end, which can only say it, where nobody was told.
  void close(Stream& stream) noexcept;
  void finish(const Moments& moments);
  // Whether the last recording is passed; each time that it is asked something is done for it.
  bool is_passed(const Moments& moments);
  // f, while nothing is done.
  void at_rest(const std::function<void()>& f);

 private:
  using Lock = std::unique_lock<std::mutex>;

  Lock locked();
  void tell();  // throws
  void push(Stream& stream, Work work);
  // Until `is_done`, for which `stream` is needed.
  void finish(Lock& lock, Stream& stream, const std::function<bool()>& is_done);
  bool advance(Stream& stream);  // by a step that the stream needs; false: a function of the host's is under way
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
