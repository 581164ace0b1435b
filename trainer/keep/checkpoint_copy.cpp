#include "trainer/keep/checkpoint_copy.h"

#include <chrono>

#include "trainer/keep/checkpoint.h"

namespace spillway {
namespace {

struct Dropped {};

}  // namespace

CheckpointCopy::CheckpointCopy(const RunDirectory& directory, std::int64_t step, StateHold hold, CopyPace pace, Write write)
    : step_(step),
      hold_(std::move(hold)),
      hurried_(pace == CopyPace::updates_wait),
      thread_([this, &directory, write = std::move(write)] {
        try {
          run(directory, write);
        } catch (const Dropped&) {
        } catch (...) {
          error_ = std::current_exception();
        }
        hold_.reset();
        complete_.store(true, std::memory_order_release);
      }) {}

CheckpointCopy::~CheckpointCopy() {
  dropped_.store(true);
  if (thread_.joinable()) thread_.join();
}

void CheckpointCopy::finish() {
  hurried_.store(true);
  thread_.join();
  if (error_) std::rethrow_exception(error_);
}

void CheckpointCopy::run(const RunDirectory& directory, const Write& write) const {
  auto began = std::chrono::steady_clock::now();
  write_checkpoint(directory, step_, [&](const std::string& file) {
    return write(*hold_, file, [&] {
      if (dropped_.load()) throw Dropped();
      if (!hurried_.load()) std::this_thread::sleep_for(std::chrono::steady_clock::now() - began);
      began = std::chrono::steady_clock::now();
    });
  });
}

}  // namespace spillway
