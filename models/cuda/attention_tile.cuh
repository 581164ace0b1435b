// Shared by attention's kernels on tensor cores: operands, the keys that a query sees, tiles of rows in shared memory, and
// products of tiles.
//
// Legend: B sequences, Tq queries, Tk keys, Hq / Hkv query / key-value heads, D head dimension. A row is D numbers of 16 bits (T)
// of one head; the next row lies `stride` further.
#pragma once

#include <cmath>
#include <cstdint>

#include "models/cuda/vectors.cuh"
#include "models/kernel_shapes.h"

namespace spillway::cuda {

// Element (b, t, head, d) lies at (b * T + t) * stride + head * D + d.
template <typename T>
struct Strided {
  T* at = nullptr;
  std::int64_t stride = 0;

  SPILLWAY_GPU T* head(std::int64_t row, std::int64_t head, std::int64_t D) const { return at + row * stride + head * D; }
};

// The operands of all the kernels; each kernel reads the ones it needs.
template <typename T>
struct AttentionOperands {
  ops::AttentionShape shape;
  Strided<const T> q, k, v, d_o;
  Strided<T> o, dq, dk, dv;
  float* lse = nullptr;                     // [B, Hq, Tq], natural logarithms
  float* delta = nullptr;                   // [B, Hq, Tq], sums over d of d_o * o
  const std::int64_t* position = nullptr;   // if given, the first query's position; no keys lie behind the last query
  const std::int32_t* first_key = nullptr;  // [B, Tq], first key of each query's document, never falling; null: one document
};

// The keys that the queries of one sequence see: [first(t), last(t)]; neither bound falls as t grows.
struct Sight {
  int queries, keys, offset, window;
  const std::int32_t* first_key;

  template <typename T>
  SPILLWAY_GPU Sight(const Gpu& gpu, const AttentionOperands<T>& of, std::int64_t sequence)
      : queries(static_cast<int>(of.shape.queries)),
        keys(static_cast<int>(of.shape.keys)),
        offset(static_cast<int>(of.shape.key_offset)),
        window(static_cast<int>(of.shape.window)),
        first_key(of.first_key == nullptr ? nullptr : of.first_key + sequence * of.shape.queries) {
    if (of.position != nullptr) offset = static_cast<int>(gpu.load(of.position)), keys = offset + queries;
  }
  SPILLWAY_GPU int last(int t) const { return offset + t; }
  SPILLWAY_GPU int first(const Gpu& gpu, int t) const {
    int first = window > 0 && last(t) >= window ? last(t) - window + 1 : 0;
    if (first_key != nullptr) {
      const int of_document = gpu.load(first_key + (t < queries ? t : queries - 1));
      first = of_document > first ? of_document : first;
    }
    return first;
  }
  // The index behind the last query whose first key is at most `key`.
  SPILLWAY_GPU int end_of_queries(const Gpu& gpu, int key) const {
    int low = 0, high = queries;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (first(gpu, middle) <= key) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }
};

// The tile of `queries` queries of one head that a block has. Tiles that see the most keys are begun first.
struct QueryTile {
  std::int64_t head, b;
  int first;
  SPILLWAY_GPU QueryTile(const Gpu& gpu, const ops::AttentionShape& s, int queries)
      : head(gpu.block() % s.heads),
        b(gpu.block() % (s.sequences * s.heads) / s.heads),
        first(static_cast<int>(tiles(s, queries) - 1 - gpu.block() / (s.sequences * s.heads)) * queries) {}
  SPILLWAY_GPU static std::int64_t tiles(const ops::AttentionShape& s, int queries) {
    return (s.queries + queries - 1) / queries;
  }
};

// Turns products q.k into scores, which are exponents of two.
struct Scores {
  float to_log2, inner;  // inner: factor on the product in a capped score's tanh; 0: there is no cap

  static constexpr float kLn2 = 0.693147181f;
  SPILLWAY_GPU explicit Scores(const ops::AttentionShape& shape)
      : to_log2((shape.softcap > 0 ? shape.softcap : shape.scale) * kLog2E),
        inner(shape.softcap > 0 ? shape.scale / shape.softcap : 0.0f) {}
  SPILLWAY_GPU bool is_capped() const { return inner > 0; }
  // The tanh of a capped score: 1 - 2 / (1 + e^2x), which ends at -1 and 1 where the power is zero or infinite.
  SPILLWAY_GPU float bent(const Gpu& gpu, float product) const {
    return 1.0f - 2.0f * gpu.reciprocal(1.0f + gpu.exp2(product * inner * (2.0f * kLog2E)));
  }
};

// --- tiles ----------------------------------------------------------------------------------------------------------------

// Rows of D numbers of 16 bits, in chunks of 16 bytes. The same chunk of eight rows lies in all banks once: each row turns the
// places of its chunks, as far as the length of rows does not do that itself.
template <int D>
struct TileLayout {
  static_assert(D % 16 == 0);
  static constexpr int kChunks = D / 8, kTurns = kChunks % 8 == 0 ? 8 : kChunks % 4 == 0 ? 4 : 2;

  SPILLWAY_GPU static int turn(int row) { return row / (8 / kTurns) % kTurns; }
  SPILLWAY_GPU static int at(int row, int chunk) { return row * D + (chunk ^ turn(row)) * 8; }
};

// Begins to copy rows [first, first + kRows) of a matrix into a tile, with zeros from row `end` on. If threads keep to one chunk
// of the rows, each address comes from the one before: computing them all before a loop would cost registers.
template <int kRows, int D, int kThreads, typename T>
SPILLWAY_GPU void copy_tile(const Gpu& gpu, Shared<T> tile, const T* rows, std::int64_t stride, int first, int end) {
  constexpr int kChunks = D / 8, kAll = kRows * kChunks, kStep = kThreads % kChunks == 0 ? kThreads / kChunks : 0;
  const T* from = rows + ((first + gpu.thread() / kChunks) * stride + gpu.thread() % kChunks * 8);
  SPILLWAY_UNROLL
  for (int i = 0; i < kAll; i += kThreads) {
    const int index = i + gpu.thread(), row = index / kChunks, chunk = index % kChunks;
    if (kAll % kThreads != 0 && index >= kAll) break;
    if (kStep == 0) from = rows + ((first + row) * stride + chunk * 8);
    gpu.copy_16(tile + TileLayout<D>::at(row, chunk), from, first + row < end);
    from += kStep * stride;
  }
}

// A lane's part in loading 16 x 16 numbers of a tile. All fragments come from this one pattern: the first two matrices are rows 0
// to 7 and 8 to 15 of the first eight columns, the other two those of the second eight.
template <typename T, int D>
class TileReader {
 public:
  SPILLWAY_GPU explicit TileReader(const Gpu& gpu)
      : row_(gpu.lane() % 16 * D), turn_((gpu.lane() / 16 ^ TileLayout<D>::turn(gpu.lane() % 16)) * 8) {}
  // `row` and `column` are multiples of 16. A turn stays within the columns of a period, so that the compiler knows the offsets
  // of the period and of the row.
  SPILLWAY_GPU Shared<T> at(Shared<T> tile, int row, int column) const {
    constexpr int kPeriod = 8 * TileLayout<D>::kTurns;
    return tile + (row_ + (column % kPeriod ^ turn_)) + (row * D + column / kPeriod * kPeriod);
  }

 private:
  int row_, turn_;
};

// --- products -------------------------------------------------------------------------------------------------------------
// Sums of 16 rows by n columns are n / 8 fragments of mma.m16n8k16. In rows lane / 4 and lane / 4 + 8, a lane has columns 2 *
// (lane % 4) and the next of each eight.

template <int n>
struct Sums {
  float x[n / 8][4];

  SPILLWAY_GPU void clear() {
    SPILLWAY_UNROLL
    for (int i = 0; i < n / 8; ++i) x[i][0] = x[i][1] = x[i][2] = x[i][3] = 0;
  }
};

// 16 rows as the left side of a product: [depth / 16] fragments.
template <int depth>
struct Left {
  std::uint32_t x[depth / 16][4];
};
template <int depth, typename T, int D>
SPILLWAY_GPU void load_left(const Gpu& gpu, Left<depth>& left, const TileReader<T, D>& reader, Shared<T> tile, int row) {
  SPILLWAY_UNROLL
  for (int k = 0; k < depth / 16; ++k) gpu.load_matrices(left.x[k], reader.at(tile, row, k * 16));
}
// Sums, rounded, as the left side of the next product.
template <typename T, int n>
SPILLWAY_GPU void round_left(const Gpu& gpu, Left<n>& left, const Sums<n>& sums) {
  SPILLWAY_UNROLL
  for (int k = 0; k < n / 16; ++k) {
    SPILLWAY_UNROLL
    for (int i = 0; i < 2; ++i) {
      const auto& x = sums.x[2 * k + i];
      left.x[k][2 * i] = gpu.template pack<T>(x[0], x[1]);
      left.x[k][2 * i + 1] = gpu.template pack<T>(x[2], x[3]);
    }
  }
}

// The left side of a product, for each of a warp's bands of 16 rows: in registers (Held), or in a tile from which it is loaded
// when it is needed (InTile).
template <int depth, int bands>
struct Held {
  const Left<depth> (&of)[bands];
  template <typename T, int D>
  SPILLWAY_GPU void give(const Gpu&, const TileReader<T, D>&, std::uint32_t (&x)[4], int band, int k) const {
    SPILLWAY_UNROLL
    for (int i = 0; i < 4; ++i) x[i] = of[band].x[k][i];
  }
};
template <typename T>
struct InTile {
  Shared<T> tile;
  int row;  // of the first band
  template <int D>
  SPILLWAY_GPU void give(const Gpu& gpu, const TileReader<T, D>& reader, std::uint32_t (&x)[4], int band, int k) const {
    gpu.load_matrices(x, reader.at(tile, row + 16 * band, k * 16));
  }
};

// sums += left times the rows of a tile, over depth D: column j of the sums is the product with row j.
template <typename T, int D, int n, int bands, typename From>
SPILLWAY_GPU void multiply_rows(const Gpu& gpu, Sums<n> (&sums)[bands], const From& left, const TileReader<T, D>& reader,
                                Shared<T> tile) {
  SPILLWAY_UNROLL
  for (int k = 0; k < D / 16; ++k) {
    std::uint32_t rows[bands][4];
    SPILLWAY_UNROLL
    for (int band = 0; band < bands; ++band) left.give(gpu, reader, rows[band], band, k);
    SPILLWAY_UNROLL
    for (int j = 0; j < n / 16; ++j) {
      std::uint32_t x[4];
      gpu.load_matrices(x, reader.at(tile, j * 16, k * 16));
      const std::uint32_t low[2] = {x[0], x[2]}, high[2] = {x[1], x[3]};
      SPILLWAY_UNROLL
      for (int band = 0; band < bands; ++band) {
        gpu.template mma<T>(sums[band].x[2 * j], rows[band], low);
        gpu.template mma<T>(sums[band].x[2 * j + 1], rows[band], high);
      }
    }
  }
}
// sums += left times a tile whose rows are the depth: column j of the sums is the product with column j.
template <typename T, int D, int depth, int bands>
SPILLWAY_GPU void multiply_columns(const Gpu& gpu, Sums<D> (&sums)[bands], const Left<depth> (&left)[bands],
                                   const TileReader<T, D>& reader, Shared<T> tile) {
  SPILLWAY_UNROLL
  for (int k = 0; k < depth / 16; ++k) {
    SPILLWAY_UNROLL
    for (int j = 0; j < D / 16; ++j) {
      std::uint32_t x[4];
      gpu.load_transposed(x, reader.at(tile, k * 16, j * 16));
      const std::uint32_t low[2] = {x[0], x[1]}, high[2] = {x[2], x[3]};
      SPILLWAY_UNROLL
      for (int band = 0; band < bands; ++band) {
        gpu.template mma<T>(sums[band].x[2 * j], left[band].x[k], low);
        gpu.template mma<T>(sums[band].x[2 * j + 1], left[band].x[k], high);
      }
    }
  }
}

// Stores sixteen rows of sums, each times its factor, to rows [first, first + 16) of a matrix, as far as they lie before `end`.
// They pass through a tile of the warp's own, so that they are stored by 16 bytes.
template <typename T, int D>
SPILLWAY_GPU void store_rows(const Gpu& gpu, const Sums<D>& sums, float upper, float lower, Shared<T> tile, T* rows,
                             std::int64_t stride, int first, int end) {
  const int row = gpu.lane() / 4, column = 2 * (gpu.lane() % 4);
  SPILLWAY_UNROLL
  for (int j = 0; j < D / 8; ++j) {
    const auto& x = sums.x[j];
    gpu.store((tile + (TileLayout<D>::at(row, j) + column)).template as<std::uint32_t>(),
              gpu.template pack<T>(x[0] * upper, x[1] * upper));
    gpu.store((tile + (TileLayout<D>::at(row + 8, j) + column)).template as<std::uint32_t>(),
              gpu.template pack<T>(x[2] * lower, x[3] * lower));
  }
  gpu.sync_warp();
  constexpr int kChunks = D / 8;
  SPILLWAY_UNROLL
  for (int i = 0; i < 16 * kChunks; i += 32) {
    const int index = i + gpu.lane(), of_tile = index / kChunks, chunk = index % kChunks;
    const auto pack = gpu.load((tile + TileLayout<D>::at(of_tile, chunk)).template as<Pack<T, 8>>());
    if (first + of_tile < end) gpu.store(reinterpret_cast<Pack<T, 8>*>(rows + (first + of_tile) * stride + chunk * 8), pack);
  }
}

}  // namespace spillway::cuda
