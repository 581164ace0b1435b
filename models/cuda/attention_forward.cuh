// Attention forward on tensor cores. A block has a tile of queries of one head, in registers, and goes through the keys and
// values that they see, tile by tile, with the softmax of the tiles so far. It takes no memory besides its operands.
//
// Legend: as in attention_tile.cuh.
#pragma once

#include "models/cuda/attention_softmax.cuh"

namespace spillway::cuda {

template <typename T, int D>
struct AttendForward {
  static constexpr int kThreads = 128, kWarps = kThreads / 32;
  // A warp has kBands bands of 16 queries: the keys and values that it loads serve them all. Registers must hold the sums.
  static constexpr int kBands = D <= 64 ? 2 : 1, kRows = 16 * kBands, kQueries = kWarps * kRows, kKeys = D <= 128 ? 64 : 32;
  static constexpr bool kHoldsQueries = D <= 128;  // in registers, else in a tile of their own
  // Tiles of keys, of values and again of keys, where those of keys take turns; then of queries. Queries that registers hold have
  // passed through the second and the third instead.
  static constexpr int kTile = kKeys * D;
  static constexpr std::int64_t kShared = static_cast<std::int64_t>(sizeof(T)) * (3 * kTile + (kHoldsQueries ? 0 : kQueries * D));
  static_assert(!kHoldsQueries || kQueries * D <= 2 * kTile);
  AttentionOperands<T> of;

  static Grid grid(const ops::AttentionShape& s) {
    return {.blocks = (s.queries + kQueries - 1) / kQueries * s.sequences * s.heads, .shared_bytes = kShared};
  }

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const ops::AttentionShape& s = of.shape;
    const QueryTile mine(gpu, s, kQueries);
    const std::int64_t head = mine.head, b = mine.b;
    const int first_query = mine.first;
    const Sight sight(gpu, of, b);
    const T* const keys = of.k.head(b * s.keys, head / (s.heads / s.kv_heads), D);
    const T* const values = of.v.head(b * s.keys, head / (s.heads / s.kv_heads), D);
    const auto all = gpu.template shared<T>();
    const auto queries = kHoldsQueries ? all + kTile : all + 3 * kTile, v_tile = all + kTile;
    const TileReader<T, D> reader(gpu);
    const int end_query = first_query + kQueries < sight.queries ? first_query + kQueries : sight.queries;
    const int first_tile = sight.first(gpu, first_query) / kKeys, last_tile = sight.last(end_query - 1) / kKeys;

    copy_tile<kQueries, D, kThreads>(gpu, queries, of.q.head(b * s.queries, head, D), of.q.stride, first_query, sight.queries);
    copy_tile<kKeys, D, kThreads>(gpu, all, keys, of.k.stride, first_tile * kKeys, sight.keys);
    gpu.commit_copies();
    Warp warp(gpu, s, sight, first_query + gpu.warp() * kRows);
    if constexpr (kHoldsQueries) {
      gpu.template wait_for_copies<0>();
      gpu.sync();
      SPILLWAY_UNROLL
      for (int band = 0; band < kBands; ++band)
        load_left(gpu, warp.queries[band], reader, queries, gpu.warp() * kRows + 16 * band);
    }
    for (int tile = first_tile; tile <= last_tile; ++tile) {
      const int first_key = tile * kKeys;
      const auto k_tile = all + (tile - first_tile) % 2 * (2 * kTile);
      gpu.template wait_for_copies<0>();
      gpu.sync();  // the keys have arrived, and no thread needs the values before them, nor the other keys
      copy_tile<kKeys, D, kThreads>(gpu, v_tile, values, of.v.stride, first_key, sight.keys);
      gpu.commit_copies();
      if (tile < last_tile) {
        const auto next = all + (tile + 1 - first_tile) % 2 * (2 * kTile);
        copy_tile<kKeys, D, kThreads>(gpu, next, keys, of.k.stride, first_key + kKeys, sight.keys);
      }
      gpu.commit_copies();
      const bool sees = warp.sees(sight, first_key);
      Left<kKeys> weights[kBands];
      if (sees) warp.weigh(gpu, sight, weights, reader, queries + gpu.warp() * kRows * D, k_tile, first_key);
      gpu.template wait_for_copies<1>();
      gpu.sync();
      if (sees) multiply_columns(gpu, warp.sums, weights, reader, v_tile);
    }
    gpu.template wait_for_copies<0>();
    gpu.sync();  // the tiles are free
    float* const lse = of.lse == nullptr ? nullptr : of.lse + (b * s.heads + head) * s.queries;
    warp.finish(gpu, all + gpu.warp() * kRows * D, of.o.head(b * s.queries, head, D), of.o.stride, lse, sight.queries);
  }

 private:
  // A warp's state for its queries, 16 in each band.
  struct Warp {
    Left<D> queries[kHoldsQueries ? kBands : 1];
    Sums<D> sums[kBands];
    Softmax softmax[kBands];
    Scores scores;
    int first_query;
    int first, all_see_from;  // the first key that any query sees, and the first that all see

    SPILLWAY_GPU Warp(const Gpu& gpu, const ops::AttentionShape& shape, const Sight& sight, int its_first)
        : scores(shape), first_query(its_first) {
      first = sight.first(gpu, first_query), all_see_from = sight.first(gpu, first_query + kRows - 1);
      SPILLWAY_UNROLL
      for (int band = 0; band < kBands; ++band) sums[band].clear();
    }

    SPILLWAY_GPU bool sees(const Sight& sight, int first_key) const {
      return first_query < sight.queries && first_key <= sight.last(first_query + kRows - 1) && first_key + kKeys > first;
    }
    // Computes the weights, powers of two of the tile's scores. Earlier sums are brought to the same base.
    SPILLWAY_GPU void weigh(const Gpu& gpu, const Sight& sight, Left<kKeys> (&weights)[kBands], const TileReader<T, D>& reader,
                            Shared<T> query_rows, Shared<T> keys, int first_key) {
      Sums<kKeys> products[kBands];
      SPILLWAY_UNROLL
      for (int band = 0; band < kBands; ++band) products[band].clear();
      if constexpr (kHoldsQueries) {
        multiply_rows(gpu, products, Held<D, kBands>{queries}, reader, keys);
      } else {
        multiply_rows(gpu, products, InTile<T>{query_rows, 0}, reader, keys);
      }
      const bool is_partial = first_key < all_see_from || first_key + kKeys - 1 > sight.last(first_query);
      SPILLWAY_UNROLL
      for (int band = 0; band < kBands; ++band) {
        if (scores.is_capped()) bend(gpu, scores, products[band]);
        if (is_partial) mask(gpu, sight, products[band], first_query + 16 * band, first_key);
        scale_rows(sums[band], softmax[band].soften(gpu, scores, products[band]));
        round_left<T>(gpu, weights[band], products[band]);
      }
    }
    SPILLWAY_GPU void finish(const Gpu& gpu, Shared<T> tile, T* rows, std::int64_t stride, float* lse, int end) {
      SPILLWAY_UNROLL
      for (int band = 0; band < kBands; ++band) {
        const int query = first_query + 16 * band;
        const RowFactors factors = softmax[band].finish(gpu, scores, lse, query, end);
        store_rows(gpu, sums[band], factors.x[0], factors.x[1], tile + 16 * band * D, rows, stride, query, end);
      }
    }
  };
};

}  // namespace spillway::cuda
