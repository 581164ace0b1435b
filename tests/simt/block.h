// One block of threads. Each lane is a fiber; warps run one by one, in an order drawn from a seed, until all wait for each other.
// It never hangs: a barrier that not all threads reach, or an operation of a warp that a lane has left or that lanes reach from
// different places, is an Error that says who waits where.
// Not here: what a kernel sees (gpu.h), memory (shared_memory.h, global_memory.h).
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "tests/simt/access_log.h"
#include "tests/simt/fiber.h"
#include "tests/simt/global_memory.h"
#include "tests/simt/machine.h"
#include "tests/simt/shared_memory.h"
#include "tests/simt/warpgroup.h"

namespace spillway::simt {

inline constexpr int kWarp = 32;

// An operation that all lanes of a warp do together; from begin_products on, all lanes of a warpgroup. Each lane brings its own
// WarpOp, in which it finds the result.
struct WarpOp {
  enum class Kind : std::uint8_t {
    sync,
    shuffle,
    multiply,
    load_matrices,
    begin_products,
    group_multiply,
    commit_products,
    wait_for_products
  };
  Kind kind = Kind::sync;
  Site at;
  std::uint64_t value = 0;                         // shuffle: brought, and taken from the other lane
  int mask = 0;                                    // shuffle: exclusive or
  Half type = Half::bf16;                          // multiply
  const std::uint32_t *a = nullptr, *b = nullptr;  // multiply: 4 and 2 registers
  float* c = nullptr;                              // multiply: 4
  std::uint32_t byte = 0;                          // load_matrices: place of 16 bytes in shared memory
  std::uint32_t* registers = nullptr;              // load_matrices: 4
  bool transposed = false;                         // load_matrices
  GroupProduct product;                            // group_multiply; wait_for_products: its sums
  int left = 0;                                    // wait_for_products: groups
  bool is_of_warpgroup() const { return kind >= Kind::begin_products; }
};

struct Launch {
  Grid grid;
  int threads = 0;
  void (*body)(const void* kernel, const Gpu& gpu) = nullptr;
  const void* kernel = nullptr;
  std::uint32_t first_count = 1;  // number of the first counted block, as in GlobalRange::read_by
};

class Block {
 public:
  explicit Block(const Options& options) : options_(options) {}
  bool is_for(const Options& options) const { return options == options_; }

  // Runs the whole block; throws Error. Adds what it counted to `counts`.
  void run(const Launch& launch, std::int64_t index, Counts& counts);

  // --- for the lane that runs ---

  std::int64_t index() const { return index_; }
  std::int64_t blocks() const { return launch_->grid.blocks; }
  int threads() const { return launch_->threads; }
  void sync(int thread, const Site& at);
  void together(int thread, WarpOp& op);
  std::byte* global(int thread, std::uintptr_t address, std::size_t bytes, bool writes, const Site& at);
  std::byte* shared(int thread, std::uint32_t byte, std::size_t bytes, bool writes, const Site& at);
  // Begins to copy 16 bytes; zeros if `from` is null.
  void copy(int thread, std::uint32_t to, const std::byte* from, const Site& at);
  void commit_copies(int thread);
  void wait_for_copies(int thread, int groups_left, const Site& at);
  void show_to_products(int thread) { shared_.show_to_products(now(thread)); }

 private:
  enum class State : std::uint8_t { ready, at_warp_op, at_warpgroup_op, at_barrier, ended };
  struct Copy {
    std::uint32_t to;
    const std::byte* from;
    int group;
  };
  struct Lane {
    Fiber fiber;
    Block* block = nullptr;
    int thread = 0;
    State state = State::ended;
    WarpOp* op = nullptr;
    Site at;
    std::vector<Copy> copies;
    int groups = 0;
    GlobalRange* last = nullptr;  // the range that it last named, which it mostly names again
  };
  struct Warp {
    std::uint32_t epoch = 0;
    AccessLog log;
  };

  void begin(const Launch& launch, std::int64_t index);
  static void run_lane(void* argument);
  bool run_warp(int warp);  // false: none of its lanes could go on
  void perform(int warp);
  void check_together(int thread, int other) const;
  void meet_warpgroup(int warp);
  void shuffle(int warp);
  void multiply(int warp);
  void load_matrices(int warp);
  void pass_barrier();
  [[noreturn]] void refuse_barrier() const;
  LaneTime now(int thread) const { return {thread, epoch_, warps_[static_cast<std::size_t>(thread / kWarp)].epoch}; }
  Lane& lane(int thread) { return *lanes_[static_cast<std::size_t>(thread)]; }
  const Lane& lane(int thread) const { return *lanes_[static_cast<std::size_t>(thread)]; }
  std::uint64_t random();

  const Options options_;
  const Launch* launch_ = nullptr;
  std::int64_t index_ = 0;
  std::uint32_t count_id_ = 0;
  std::uint32_t epoch_ = 0;
  std::uint64_t random_state_ = 0;
  Counts counts_;
  SharedMemory shared_;
  std::vector<Warp> warps_;
  std::vector<Warpgroup> warpgroups_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::exception_ptr failure_;
};

}  // namespace spillway::simt
