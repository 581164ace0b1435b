#include "offload/enqueued_lane.h"

#include <utility>

#include "memory/base/prompt_thread.h"

namespace spillway {

EnqueuedLane::EnqueuedLane(Runtime& runtime, Stream& stream, std::size_t ahead, Completed completed)
    : stream_(stream), completed_(std::move(completed)), tickets_(ahead) {
  for (std::size_t i = 0; i < ahead; ++i) events_.push_back(runtime.make_event());
  thread_ = std::thread([this] { complete_all(); });
}

EnqueuedLane::~EnqueuedLane() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void EnqueuedLane::push(const Ticket& ticket) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return pushed_ - completed_count_ < tickets_.size(); });
  const std::size_t place = pushed_ % tickets_.size();
  tickets_[place] = ticket;
  if (ticket.is_enqueued) stream_.record(*events_[place]);
  ++pushed_;
  lock.unlock();
  changed_.notify_all();
}

void EnqueuedLane::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return pushed_ == completed_count_; });
}

void EnqueuedLane::complete_all() {
  make_thread_prompt();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return pushed_ != completed_count_ || is_over_; });
    if (pushed_ == completed_count_) return;
    const std::size_t place = completed_count_ % tickets_.size();
    const Ticket ticket = tickets_[place];
    lock.unlock();
    bool is_complete = true;
    try {
      if (ticket.is_enqueued) events_[place]->synchronize();
    } catch (...) {
      is_complete = false;
      completed_(ticket, false);
    }
    if (is_complete) completed_(ticket, true);
    lock.lock();
    ++completed_count_;
    changed_.notify_all();
  }
}

}  // namespace spillway
