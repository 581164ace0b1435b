// Attention backward on tensor cores, in three kernels without atomics: sums of each query's d_o * o, then the gradients of keys
// and values, then those of queries. Each of the latter two recomputes the products of queries and keys; in return each gradient
// has one owner, and its sums one order.
//
// With p = exp(score - lse) and dp = d_o v: dv = p d_o; ds = p (dp - delta), times the slope of a capped score; dq = ds k and dk
// = ds q, both times the scale at the end.
//
// Legend: as in attention_tile.cuh.
#pragma once

#include "models/cuda/attention_tile.cuh"

namespace spillway::cuda {

// Computes delta: eight lanes have a row of one head, and go through it in packs of n.
template <typename T, int n>
struct AttendDelta {
  static constexpr int kThreads = 256, kLanes = 8, kRows = kThreads / kLanes;
  AttentionOperands<T> of;

  static Grid grid(const ops::AttentionShape& s) { return {.blocks = (s.sequences * s.queries * s.heads + kRows - 1) / kRows}; }

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const ops::AttentionShape& s = of.shape;
    const std::int64_t index = gpu.block() * kRows + gpu.thread() / kLanes, row = index / s.heads, head = index % s.heads;
    const bool is_there = row < s.sequences * s.queries;
    float sum = 0;
    if (is_there) {
      const T *o = of.o.head(row, head, s.head_dim), *d_o = of.d_o.head(row, head, s.head_dim);
      for (std::int64_t d = gpu.thread() % kLanes * n; d < s.head_dim; d += kLanes * n) {
        const auto left = load_floats<T, n>(gpu, o + d), right = load_floats<T, n>(gpu, d_o + d);
        for (int i = 0; i < n; ++i) sum += left.x[i] * right.x[i];
      }
    }
    for (int mask = kLanes / 2; mask > 0; mask /= 2) sum += gpu.shuffle_xor(sum, mask);
    if (is_there && gpu.thread() % kLanes == 0)
      gpu.store(of.delta + (row / s.queries * s.heads + head) * s.queries + row % s.queries, sum);
  }
};

// Replaces a product by p, and its dp by ds. `lse` is an exponent of two.
SPILLWAY_GPU void slope_of(const Gpu& gpu, const Scores& scores, bool is_seen, float lse, float delta, float& product,
                           float& dp) {
  float x = product, slope = 1;
  if (scores.is_capped()) x = scores.bent(gpu, product), slope = 1.0f - x * x;
  const float p = is_seen ? gpu.exp2(x * scores.to_log2 - lse) : 0.0f;
  product = p, dp = p * (dp - delta) * slope;
}

// Numbers of one query of a tile, in the registers of one of the first threads on their way to shared memory. Shared memory
// holds, for all queries, lse as an exponent of two, then delta where it is wanted, then the first key.
template <typename T, int kQueries, bool wants_delta>
struct QueryStatistics {
  static constexpr int kNumbers = 3 * kQueries;
  float lse = 0, delta = 0;
  int first = 0;

  SPILLWAY_GPU void load(const Gpu& gpu, const AttentionOperands<T>& of, const Sight& sight, std::int64_t row, int query) {
    if (gpu.thread() >= kQueries) return;
    const int t = query + gpu.thread();
    // Queries beyond the last have no weight.
    lse = t < sight.queries ? gpu.load(of.lse + row + t) * kLog2E : INFINITY;
    if constexpr (wants_delta) delta = t < sight.queries ? gpu.load(of.delta + row + t) : 0.0f;
    first = sight.first(gpu, t);
  }
  SPILLWAY_GPU void store(const Gpu& gpu, Shared<float> numbers) const {
    if (gpu.thread() >= kQueries) return;
    gpu.store(numbers + gpu.thread(), lse);
    gpu.store(numbers + (kQueries + gpu.thread()), delta);
    gpu.store((numbers + (2 * kQueries + gpu.thread())).template as<int>(), first);
  }
};

// Computes dk and dv, or one of them where registers do not hold both. A block has a tile of keys and values of one head, a warp
// has 16 of them; the block goes through all queries that see them, in all heads of the group.
template <typename T, int D, bool wants_dk, bool wants_dv>
struct AttendBackwardKeys {
  static constexpr int kThreads = 128, kKeys = 64, kQueries = D <= 128 ? 32 : 16;
  // True where registers have room for keys and values; else these are loaded from their tiles for each tile of queries.
  static constexpr bool kHolds = D <= 64 && wants_dk && wants_dv;
  // Two tiles of queries and two of d_o take turns, and so do the statistics of their queries: lse, delta and the first key.
  static constexpr int kTile = kKeys * D, kTurn = kQueries * D, kTiles = (wants_dk ? 2 : 1) * kTile;
  static constexpr std::int64_t kStatistics = static_cast<std::int64_t>(sizeof(T)) * (kTiles + 4 * kTurn);
  using Statistics = QueryStatistics<T, kQueries, wants_dk>;
  static constexpr std::int64_t kShared = kStatistics + 2 * Statistics::kNumbers * static_cast<std::int64_t>(sizeof(float));
  AttentionOperands<T> of;

  static Grid grid(const ops::AttentionShape& s) {
    return {.blocks = (s.keys + kKeys - 1) / kKeys * s.sequences * s.kv_heads, .shared_bytes = kShared};
  }

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const ops::AttentionShape& s = of.shape;
    const std::int64_t each = s.sequences * s.kv_heads, kv_head = gpu.block() % s.kv_heads, b = gpu.block() % each / s.kv_heads;
    const int first_key = static_cast<int>(gpu.block() / each) * kKeys, group = static_cast<int>(s.heads / s.kv_heads);
    const Sight sight(gpu, of, b);
    // The first tile of queries that see any of the keys, and the number of such tiles in each head of the group.
    const int first_query = first_key > sight.offset ? first_key - sight.offset : 0;
    const int end_query = sight.end_of_queries(gpu, first_key + kKeys - 1), first_tile = first_query / kQueries;
    const int tiles = end_query > first_query ? (end_query - 1) / kQueries - first_tile + 1 : 0;

    const auto all = gpu.template shared<T>();
    const auto k_tile = all, v_tile = all + (kTiles - kTile);
    const TileReader<T, D> reader(gpu);
    copy_tile<kKeys, D, kThreads>(gpu, k_tile, of.k.head(b * s.keys, kv_head, D), of.k.stride, first_key, sight.keys);
    if constexpr (wants_dk)
      copy_tile<kKeys, D, kThreads>(gpu, v_tile, of.v.head(b * s.keys, kv_head, D), of.v.stride, first_key, sight.keys);
    if constexpr (kHolds) gpu.commit_copies();
    Statistics statistics;
    const auto begin = [&](int i) {
      const std::int64_t head = kv_head * group + i / tiles;
      const int query = (first_tile + i % tiles) * kQueries;
      const auto q_tile = all + (kTiles + i % 2 * 2 * kTurn);
      copy_tile<kQueries, D, kThreads>(gpu, q_tile, of.q.head(b * s.queries, head, D), of.q.stride, query, sight.queries);
      copy_tile<kQueries, D, kThreads>(gpu, q_tile + kTurn, of.d_o.head(b * s.queries, head, D), of.d_o.stride, query,
                                       sight.queries);
      statistics.load(gpu, of, sight, (b * s.heads + head) * s.queries, query);
    };
    if (tiles > 0) begin(0);
    gpu.commit_copies();

    Warp warp(s, first_key + gpu.warp() * 16);
    if constexpr (kHolds) {
      gpu.template wait_for_copies<1>();
      gpu.sync();
      load_left(gpu, warp.keys[0], reader, k_tile, gpu.warp() * 16);
      load_left(gpu, warp.values[0], reader, v_tile, gpu.warp() * 16);
    }
    for (int i = 0; i < group * tiles; ++i) {
      const auto numbers = gpu.template shared<float>(kStatistics) + i % 2 * Statistics::kNumbers;
      statistics.store(gpu, numbers);
      gpu.template wait_for_copies<0>();
      gpu.sync();  // the queries have arrived, and no thread needs the ones before them
      if (i + 1 < group * tiles) begin(i + 1);
      gpu.commit_copies();
      const auto q_tile = all + (kTiles + i % 2 * 2 * kTurn);
      warp.add(gpu, reader, sight, (first_tile + i % tiles) * kQueries, k_tile, v_tile, q_tile, q_tile + kTurn, numbers);
    }
    gpu.template wait_for_copies<0>();
    gpu.sync();  // the tiles are free
    const int row = gpu.warp() * 16;
    if constexpr (wants_dk)
      store_rows(gpu, warp.dk[0], s.scale, s.scale, k_tile + row * D, of.dk.head(b * s.keys, kv_head, D), of.dk.stride,
                 first_key + row, sight.keys);
    if constexpr (wants_dv)
      store_rows(gpu, warp.dv[0], 1.0f, 1.0f, v_tile + row * D, of.dv.head(b * s.keys, kv_head, D), of.dv.stride, first_key + row,
                 sight.keys);
  }

 private:
  // Products here have keys as rows and queries as columns, so that they are the left sides of the products that make gradients.
  struct Warp {
    Left<kHolds ? D : 16> keys[1], values[1];
    Sums<D> dk[1], dv[1];
    Scores scores;
    int first_key;

    SPILLWAY_GPU Warp(const ops::AttentionShape& shape, int its_first) : scores(shape), first_key(its_first) {
      if constexpr (wants_dk) dk[0].clear();
      if constexpr (wants_dv) dv[0].clear();
    }

    SPILLWAY_GPU void add(const Gpu& gpu, const TileReader<T, D>& reader, const Sight& sight, int query, Shared<T> k_tile,
                          Shared<T> v_tile, Shared<T> q_tile, Shared<T> do_tile, Shared<float> numbers) {
      const auto first = (numbers + 2 * kQueries).template as<int>();
      const int least = gpu.load(first), most = gpu.load(first + (kQueries - 1));
      if (first_key > sight.last(query + kQueries - 1) || first_key + 15 < least) return;
      const bool is_partial = first_key + 15 > sight.last(query) || first_key < most;
      Sums<kQueries> products[1], dp[1];
      products[0].clear(), dp[0].clear();
      if constexpr (kHolds) {
        multiply_rows(gpu, products, Held<D, 1>{keys}, reader, q_tile);
        multiply_rows(gpu, dp, Held<D, 1>{values}, reader, do_tile);
      } else {
        multiply_rows(gpu, products, InTile<T>{k_tile, gpu.warp() * 16}, reader, q_tile);
        if constexpr (wants_dk) multiply_rows(gpu, dp, InTile<T>{v_tile, gpu.warp() * 16}, reader, do_tile);
      }
      SPILLWAY_UNROLL
      for (int j = 0; j < kQueries / 8; ++j) {
        const int column = 8 * j + 2 * (gpu.lane() % 4);
        const auto lse = gpu.load((numbers + column).template as<Pack<float, 2>>());
        const auto delta = gpu.load((numbers + (kQueries + column)).template as<Pack<float, 2>>());
        const auto firsts = gpu.load((first + column).template as<Pack<int, 2>>());
        SPILLWAY_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int key = first_key + gpu.lane() / 4 + i / 2 * 8;
          const bool is_seen = !is_partial || (key <= sight.last(query + column + i % 2) && key >= firsts.x[i % 2]);
          slope_of(gpu, scores, is_seen, lse.x[i % 2], delta.x[i % 2], products[0].x[j][i], dp[0].x[j][i]);
        }
      }
      Left<kQueries> left[1];
      if constexpr (wants_dv) {
        round_left<T>(gpu, left[0], products[0]);
        multiply_columns(gpu, dv, left, reader, do_tile);
      }
      if constexpr (wants_dk) {
        round_left<T>(gpu, left[0], dp[0]);
        multiply_columns(gpu, dk, left, reader, q_tile);
      }
    }
  };
};

// Computes dq. A block has a tile of queries of one head, a warp has 16 of them; the block goes through the keys and values that
// they see.
template <typename T, int D>
struct AttendBackwardQueries {
  static constexpr int kThreads = 128, kQueries = 64, kKeys = D <= 128 ? 32 : 16;
  static constexpr bool kHolds = D <= 128;  // queries and d_o in registers, else in tiles of their own
  // Two tiles of keys and two of values take turns. Queries and d_o that registers hold have passed through them.
  static constexpr int kTile = kQueries * D, kTurn = kKeys * D, kFirstTurn = kHolds ? 0 : 2 * kTile;
  static constexpr std::int64_t kShared = static_cast<std::int64_t>(sizeof(T)) * (kFirstTurn + 4 * kTurn);
  static_assert(!kHolds || 2 * kTile <= 4 * kTurn);
  AttentionOperands<T> of;

  static Grid grid(const ops::AttentionShape& s) {
    return {.blocks = (s.queries + kQueries - 1) / kQueries * s.sequences * s.heads, .shared_bytes = kShared};
  }

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const ops::AttentionShape& s = of.shape;
    const QueryTile mine(gpu, s, kQueries);
    const std::int64_t head = mine.head, b = mine.b, kv_head = head / (s.heads / s.kv_heads);
    const int first_query = mine.first;
    const Sight sight(gpu, of, b);
    const int end_query = first_query + kQueries < sight.queries ? first_query + kQueries : sight.queries;
    const int first_tile = sight.first(gpu, first_query) / kKeys, last_tile = sight.last(end_query - 1) / kKeys;

    const auto all = gpu.template shared<T>();
    const auto q_tile = all, do_tile = all + kTile;
    const TileReader<T, D> reader(gpu);
    copy_tile<kQueries, D, kThreads>(gpu, q_tile, of.q.head(b * s.queries, head, D), of.q.stride, first_query, sight.queries);
    copy_tile<kQueries, D, kThreads>(gpu, do_tile, of.d_o.head(b * s.queries, head, D), of.d_o.stride, first_query,
                                     sight.queries);
    gpu.commit_copies();
    Warp warp(gpu, of, sight, (b * s.heads + head) * s.queries, first_query + gpu.warp() * 16);
    if constexpr (kHolds) {
      gpu.template wait_for_copies<0>();
      gpu.sync();
      load_left(gpu, warp.queries[0], reader, q_tile, gpu.warp() * 16);
      load_left(gpu, warp.d_o[0], reader, do_tile, gpu.warp() * 16);
      gpu.sync();  // the tiles are free
    }
    const auto begin = [&](int tile) {
      const auto k_tile = all + (kFirstTurn + tile % 2 * 2 * kTurn);
      copy_tile<kKeys, D, kThreads>(gpu, k_tile, of.k.head(b * s.keys, kv_head, D), of.k.stride, tile * kKeys, sight.keys);
      copy_tile<kKeys, D, kThreads>(gpu, k_tile + kTurn, of.v.head(b * s.keys, kv_head, D), of.v.stride, tile * kKeys,
                                    sight.keys);
    };
    begin(first_tile);
    gpu.commit_copies();
    for (int tile = first_tile; tile <= last_tile; ++tile) {
      gpu.template wait_for_copies<0>();
      gpu.sync();  // the keys and values have arrived, and no thread needs the ones before them
      if (tile < last_tile) begin(tile + 1);
      gpu.commit_copies();
      const auto k_tile = all + (kFirstTurn + tile % 2 * 2 * kTurn);
      warp.add(gpu, reader, sight, tile * kKeys, q_tile, do_tile, k_tile, k_tile + kTurn);
    }
    gpu.template wait_for_copies<0>();
    gpu.sync();  // the tiles are free
    const int row = gpu.warp() * 16;
    store_rows(gpu, warp.sums[0], s.scale, s.scale, all + row * D, of.dq.head(b * s.queries, head, D), of.dq.stride,
               first_query + row, sight.queries);
  }

 private:
  // A warp's state for its queries. A lane has rows lane / 4 and lane / 4 + 8.
  struct Warp {
    Left<kHolds ? D : 16> queries[1], d_o[1];
    Sums<D> sums[1];
    Scores scores;
    int first_query, first, all_see_from;  // the first key that any query sees, and the first that all see
    int first_of[2];
    float lse[2], delta[2];

    SPILLWAY_GPU Warp(const Gpu& gpu, const AttentionOperands<T>& of, const Sight& sight, std::int64_t row, int its_first)
        : scores(of.shape), first_query(its_first) {
      sums[0].clear();
      first = sight.first(gpu, first_query), all_see_from = sight.first(gpu, first_query + 15);
      SPILLWAY_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int t = first_query + 8 * half + gpu.lane() / 4;
        first_of[half] = sight.first(gpu, t);
        // Queries beyond the last have no weight.
        lse[half] = t < sight.queries ? gpu.load(of.lse + row + t) * kLog2E : INFINITY;
        delta[half] = t < sight.queries ? gpu.load(of.delta + row + t) : 0.0f;
      }
    }

    SPILLWAY_GPU void add(const Gpu& gpu, const TileReader<T, D>& reader, const Sight& sight, int first_key, Shared<T> q_tile,
                          Shared<T> do_tile, Shared<T> k_tile, Shared<T> v_tile) {
      if (first_query >= sight.queries || first_key > sight.last(first_query + 15) || first_key + kKeys <= first) return;
      const bool is_partial = first_key + kKeys - 1 > sight.last(first_query) || first_key < all_see_from;
      Sums<kKeys> products[1], dp[1];
      products[0].clear(), dp[0].clear();
      if constexpr (kHolds) {
        multiply_rows(gpu, products, Held<D, 1>{queries}, reader, k_tile);
        multiply_rows(gpu, dp, Held<D, 1>{d_o}, reader, v_tile);
      } else {
        multiply_rows(gpu, products, InTile<T>{q_tile, gpu.warp() * 16}, reader, k_tile);
        multiply_rows(gpu, dp, InTile<T>{do_tile, gpu.warp() * 16}, reader, v_tile);
      }
      SPILLWAY_UNROLL
      for (int j = 0; j < kKeys / 8; ++j) {
        SPILLWAY_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int key = first_key + 8 * j + 2 * (gpu.lane() % 4) + i % 2, half = i / 2;
          const int query = first_query + 8 * half + gpu.lane() / 4;
          const bool is_seen = !is_partial || (key <= sight.last(query) && key >= first_of[half]);
          slope_of(gpu, scores, is_seen, lse[half], delta[half], products[0].x[j][i], dp[0].x[j][i]);
        }
      }
      Left<kKeys> left[1];
      round_left<T>(gpu, left[0], dp[0]);
      multiply_columns(gpu, sums, left, reader, k_tile);
    }
  };
};

}  // namespace spillway::cuda
