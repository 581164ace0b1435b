// The products of a warpgroup. They are in flight from when they are begun until they are waited for, and are computed then: as
// late as they may be. Touching what nobody may touch meanwhile shows: sums are NaN until then and must still be, registers on
// the left side must be as they were, and shared memory must be there, and shown to products, from beginning to end.
// Not here: how its lanes meet (block.h).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/simt/machine.h"
#include "tests/simt/shared_memory.h"

namespace spillway::simt {

inline constexpr int kGroupThreads = 128, kGroupRows = 64;

// Rows of 64 numbers of 16 bits from a byte of shared memory on; columns behind them `next` bytes further.
struct Panel {
  std::uint32_t byte = 0, next = 0;
};

// A lane's operands of a product.
struct GroupProduct {
  Half type = Half::bf16;
  float* c = nullptr;  // half as many numbers as there are columns
  int columns = 0;
  const std::uint32_t* held = nullptr;  // left side in 4 registers, times columns of `right`; null: `left`, times its rows
  Panel left, right;
  bool adds = false;
};

class Warpgroup {
 public:
  // The first lanes of two of its warps, which read for all lanes.
  struct Readers {
    LaneTime one, other;
  };

  void reset() { is_begun_ = false, groups_ = 0, sums_.clear(), products_.clear(); }
  bool is_busy() const { return !products_.empty(); }
  void begin() { is_begun_ = true; }
  void multiply(std::span<const GroupProduct* const> of_lanes, const Readers& readers, SharedMemory& shared, const Site& at);
  void commit() { ++groups_; }
  // `sums` are the first lane's. They must be complete afterwards.
  void wait(int groups_left, const float* sums, Chip chip, const Readers& readers, SharedMemory& shared, const Site& at);

 private:
  struct Sums {
    std::array<float*, kGroupThreads> of_lanes{};
    std::vector<float> values;  // [64, columns]
    int products = 0;           // in flight
  };
  struct Product {
    GroupProduct of;  // of the first lane
    std::array<const std::uint32_t*, kGroupThreads> held{};
    std::array<std::array<std::uint32_t, 4>, kGroupThreads> held_before{};
    Site at;
    int group = 0;
  };
  Sums& sums_of(std::span<const GroupProduct* const> of_lanes);
  void make(const Product& product, Chip chip, const Readers& readers, SharedMemory& shared, const Site& at);
  static void give_back(const Sums& sums);

  bool is_begun_ = false;  // begin() has come since registers may have been written
  int groups_ = 0;
  std::vector<Sums> sums_;
  std::vector<Product> products_;
};

}  // namespace spillway::simt
