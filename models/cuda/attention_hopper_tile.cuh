// Shared by attention's kernels for Hopper, beyond attention_tile.cuh: tiles in the layout that products of a warpgroup take,
// these products, and the turns of warpgroups.
//
// Legend: as in attention_tile.cuh. A tile lies in panels of 64 columns, one after the other, each laid out as TileLayout<64>.
// Sums and Left are those of a warp: the i-th warp of a warpgroup has 16 of its 64 rows, from row 16 i on.
#pragma once

#include "models/cuda/attention_tile.cuh"

namespace spillway::cuda {

inline constexpr int kPanel = 64;  // columns

// Like copy_tile, but into panels. A thread copies the same chunk of every kStep-th row, so that all its places follow from the
// first by numbers that the compiler knows.
template <int kRows, int D, int kThreads, typename T>
SPILLWAY_GPU void copy_panels(const Gpu& gpu, Shared<T> tile, const T* rows, std::int64_t stride, int first, int end) {
  constexpr int kChunks = kPanel / 8, kStep = kThreads / kChunks;
  static_assert(D % kPanel == 0 && kStep % 8 == 0);
  const int row = gpu.thread() / kChunks, chunk = gpu.thread() % kChunks;
  const auto to = tile + TileLayout<kPanel>::at(row, chunk);
  const T* from = rows + ((first + row) * stride + chunk * 8);
  SPILLWAY_UNROLL
  for (int i = 0; i < kRows; i += kStep) {
    if (kRows % kStep != 0 && row + i >= kRows) break;
    SPILLWAY_UNROLL
    for (int column = 0; column < D; column += kPanel)
      gpu.copy_16(to + (column * kRows + i * kPanel), from + column, first + row + i < end);
    from += kStep * stride;
  }
}

// Lets all later products see what the threads have written, or copied and waited for.
SPILLWAY_GPU void share_with_products(const Gpu& gpu) {
  gpu.show_to_products();
  gpu.sync();
}

// The turns of a block's two warpgroups: while products of one are in flight, the other computes. Both do the same steps of two
// turns each, the second warpgroup one turn later. If a block has one warpgroup, other blocks of the SM take the other's part.
template <int groups>
class Turns {
 public:
  // The number of places that take turns to hold what a step uses. A place is free again three turns after the first warpgroup
  // has begun its step. Copies begin in the first turn of a step: the first warpgroup begins them one step ahead, the second two.
  static constexpr int kPlaces = 3;
  static_assert(groups == 1 || groups == 2);

  SPILLWAY_GPU explicit Turns(const Gpu& gpu) : group_(groups == 1 ? 0 : gpu.uniform(gpu.warp() / 4)) {}
  SPILLWAY_GPU int group() const { return group_; }
  SPILLWAY_GPU bool is_late() const { return group_ > 0; }
  // How many steps ahead this warpgroup begins copies.
  SPILLWAY_GPU int ahead() const { return 1 + group_; }
  // Begins the turns. This thread's copies for the first step must have been waited for.
  SPILLWAY_GPU void begin(const Gpu& gpu) const {
    share_with_products(gpu);
    if (is_late()) end(gpu);
  }
  SPILLWAY_GPU void end_first(const Gpu& gpu) const {
    if constexpr (groups > 1) end(gpu);
  }
  // Ends the second turn of a step. The step's copies must have been waited for.
  SPILLWAY_GPU void end_second(const Gpu& gpu) const {
    gpu.show_to_products();
    end(gpu);
  }
  // Comes after the last step. When it returns, no warpgroup uses the places any more.
  SPILLWAY_GPU void finish(const Gpu& gpu) const {
    if (groups > 1 && !is_late()) end(gpu);
  }

 private:
  static SPILLWAY_GPU void end(const Gpu& gpu) { gpu.sync_steps<128 * groups>(); }
  int group_;
};

// The n rows of a tile, as either side of a product takes them.
template <typename T, int n>
SPILLWAY_GPU Panels<T> panels_of(Shared<T> tile) {
  return Panels<T>(tile, n * kPanel);
}

// Begins sums = left times the rows of a tile, over depth D: column j of the sums is the product with row j. The left side is 64
// rows, from `row` on, of a tile of `rows` rows.
template <int D, int rows, int n, typename T>
SPILLWAY_GPU void multiply_rows(const Gpu& gpu, Sums<n>& sums, const Panels<T>& left, int row, const Panels<T>& right) {
  SPILLWAY_UNROLL
  for (int k = 0; k < D; k += 16) {
    const int column = k % kPanel;
    const auto a = left + (k / kPanel * rows * kPanel + row * kPanel + column), b = right + (k / kPanel * n * kPanel + column);
    k == 0 ? gpu.multiply_rows(sums.x, a, b) : gpu.add_rows(sums.x, a, b);
  }
}
// Begins sums += left times a tile whose rows are the depth: column j of the sums is the product with column j.
template <int depth, int n, typename T>
SPILLWAY_GPU void add_columns(const Gpu& gpu, Sums<n>& sums, const Left<depth>& left, const Panels<T>& right) {
  SPILLWAY_UNROLL
  for (int k = 0; k < depth; k += 16) gpu.add_columns(sums.x, left.x[k / 16], right + k * kPanel);
}

}  // namespace spillway::cuda
