#include "trainer/checkpoint_copy.h"

#include <chrono>

#include "trainer/checkpoint.h"
#include "trainer/durable_store.h"

namespace spillway {
namespace {

struct Dropped {};

}  // namespace

CheckpointCopy::CheckpointCopy(const RunDirectory& directory, std::int64_t step, Store& store, const StoreIdentity& identity, DurableHold hold)
    : step_(step), hold_(std::move(hold)), thread_([this, &directory, &store, identity] {
        try {
          copy(directory, store, identity);
        } catch (const Dropped&) {
        } catch (...) {
          error_ = std::current_exception();
        }
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

void CheckpointCopy::copy(const RunDirectory& directory, Store& store, const StoreIdentity& identity) const {
  auto began = std::chrono::steady_clock::now();
  write_checkpoint(directory, step_, [&](const std::string& file) {
    copy_durable_state(store, identity, file, [&] {
      if (dropped_.load()) throw Dropped();
      // Half of the time is left to training's own reads and writes, until somebody waits.
      if (!hurried_.load()) std::this_thread::sleep_for(std::chrono::steady_clock::now() - began);
      began = std::chrono::steady_clock::now();
    });
  });
}

}  // namespace spillway
