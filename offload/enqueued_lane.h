// A lane whose operations a stream of the device executes: they are enqueued ahead of it, and a thread of the lane's own sees
// them complete, in their order. So the lane waits for other lanes alone, and never for its own work. Not here: what is enqueued,
// and which operation waits for which (lane_runner.h).
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "memory/runtime/runtime.h"

namespace spillway {

struct BoundOp;
struct Run;

class EnqueuedLane {
 public:
  struct Ticket {
    Run* run = nullptr;
    int turn = 0;
    const BoundOp* op = nullptr;  // null: the lane is through with the run
    bool is_enqueued = false;     // true: some of its work is on the stream
    double enqueued_s = 0;
  };
  // Called by the lane's own thread, ticket after ticket, once the stream has passed the work that was enqueued before push().
  // `complete` is false where the device reported an error instead, which is then the current exception. Must not throw.
  using Completed = std::function<void(const Ticket& ticket, bool complete)>;

  // At most `ahead` >= 1 tickets are under way. The stream must outlive this; `runtime` is its maker.
  EnqueuedLane(Runtime& runtime, Stream& stream, std::size_t ahead, Completed completed);
  ~EnqueuedLane();  // returns when all tickets are complete
  EnqueuedLane(const EnqueuedLane&) = delete;
  EnqueuedLane& operator=(const EnqueuedLane&) = delete;

  Stream& stream() const { return stream_; }
  // Both are called by one thread. push() waits for a free place; work enqueued on the stream since the last push() is the
  // ticket's.
  void push(const Ticket& ticket);
  void drain();  // waits until all tickets are complete

 private:
  void complete_all();

  Stream& stream_;
  const Completed completed_;
  std::vector<Ticket> tickets_;                 // a ring
  std::vector<std::unique_ptr<Event>> events_;  // [tickets_]
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t pushed_ = 0, completed_count_ = 0;
  bool is_over_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace spillway
