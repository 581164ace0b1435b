// The emulated device: its memory, the options of a launch, and its counts.
// Not here: what a kernel sees (gpu.h), how a block runs (block.h).
//
// On every access it checks that the access lies in an allocation and is aligned to its size. If asked, it counts bytes of global
// memory by sectors of 32, once for each block that touches them, and how often banks of shared memory collide.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/simt/mma.h"

namespace spillway::simt {

using Site = std::source_location;

// Says what a kernel did that no kernel may do: the lane, the place in the source, and what came before it.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
std::string text_of(const Site& site);  // "norm.cuh:33"

// --- Memory of the device -------------------------------------------------------------------------------------------------

// Memory aligned as cudaMalloc's is, and filled with NaN. None is made or ended while a launch runs.
std::byte* allocate(std::size_t bytes);
void release(std::byte* memory);

template <typename T>
class Buffer {
 public:
  explicit Buffer(std::size_t elements) : data_(reinterpret_cast<T*>(allocate(elements * sizeof(T)))), elements_(elements) {}
  explicit Buffer(std::span<const T> content) : Buffer(content.size()) { std::copy(content.begin(), content.end(), data_); }
  ~Buffer() {
    if (data_ != nullptr) release(reinterpret_cast<std::byte*>(data_));
  }
  Buffer(Buffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)), elements_(other.elements_) {}
  Buffer& operator=(Buffer&&) = delete;

  T* data() const { return data_; }
  std::span<T> all() const { return {data_, elements_}; }

 private:
  T* data_;
  std::size_t elements_;
};

// --- Launches -------------------------------------------------------------------------------------------------------------

struct Options {
  Chip chip = Chip::sm_120;  // sm_90 has kernels of its own, which are asked for by name
  std::uint64_t seed = 1;    // of the order of blocks, and of warps within them
  bool counts = false;
  int threads = 1;  // of the host
  bool operator==(const Options&) const = default;
};

struct Counts {
  std::int64_t read_bytes = 0, written_bytes = 0;     // of global memory
  std::int64_t requested_bytes = 0, moved_bytes = 0;  // by warps: bytes that lanes asked for, and bytes of the sectors for that
  std::int64_t shared_requests = 0, bank_conflicts = 0;
  Counts& operator+=(const Counts& other);
};

struct Grid {
  std::int64_t blocks = 1;
  std::int64_t shared_bytes = 0;  // of a block
};

class Gpu;

// A stream of the runtime (runtime.h), as launches see it. The stream's native_handle() points to this.
class Later {
 public:
  virtual ~Later() = default;
  virtual void enqueue(std::function<void()> work) = 0;
  virtual void enqueue_host(std::function<void()> work) = 0;  // which may block
  virtual void finish() = 0;
};

// The destination of launches. Without a stream, launches are done when they return; with a stream, when the stream comes to
// them. The queue outlives them.
class Queue {
 public:
  explicit Queue(const Options& options = {}) : options_(options) {}
  explicit Queue(void* stream, const Options& options = {}) : options_(options), stream_(static_cast<Later*>(stream)) {}
  void synchronize() {
    if (stream_ != nullptr) stream_->finish();
  }
  const Options& options() const { return options_; }
  bool has_warpgroups() const { return options_.chip == Chip::sm_90; }
  const Counts& counts() const { return counts_; }  // of all launches
  void clear_counts() { counts_ = {}; }

  // Runs work in its turn. The work takes along what it needs.
  void enqueue(std::function<void()> work) { stream_ == nullptr ? work() : stream_->enqueue(std::move(work)); }
  // Runs the launch now. Throws Error.
  void run(const Grid& grid, int threads_of_block, void (*body)(const void* kernel, const Gpu& gpu), const void* kernel);

 private:
  Options options_;
  Later* stream_ = nullptr;
  Counts counts_;
};

// Runs kernel(gpu) for each thread of a grid of blocks of K::kThreads.
template <typename K>
void launch(Queue& queue, const Grid& grid, const K& kernel) {
  queue.enqueue([&queue, grid, kernel] {
    queue.run(grid, K::kThreads, [](const void* of, const Gpu& gpu) { (*static_cast<const K*>(of))(gpu); }, &kernel);
  });
}

}  // namespace spillway::simt
