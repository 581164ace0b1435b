#include "collectives/slow_collective.h"

#include <fmt/core.h>

#include <utility>

namespace spillway {

SlowCollective::SlowCollective(const Communicator& communicator, Say say, std::chrono::milliseconds patience)
    : communicator_(communicator), say_(std::move(say)), patience_(patience), thread_([this] { watch(); }) {}

SlowCollective::~SlowCollective() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void SlowCollective::begin(int id, const std::string& name) {
  const std::lock_guard lock(mutex_);
  id_ = id, name_ = &name;
  began_ = std::chrono::steady_clock::now();
}

void SlowCollective::end() {
  const std::lock_guard lock(mutex_);
  name_ = nullptr;
}

// Looks now and then: collectives are many and short, and their thread should not have to wake this one.
void SlowCollective::watch() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, patience_ / 4, [this] { return is_over_; })) {
    if (name_ == nullptr || std::chrono::steady_clock::now() - began_ < patience_) continue;
    const std::string& name = *std::exchange(name_, nullptr);
    const int rank = communicator_.waits_for();
    std::string words = fmt::format("rank {} has been in operation {}, {}, for {:.0f} s", communicator_.rank(), id_, name,
                                    std::chrono::duration<double>(patience_).count());
    if (rank >= 0) words += fmt::format(", and waits for rank {}", rank);
    lock.unlock();
    say_(words);
    lock.lock();
  }
}

}  // namespace spillway
