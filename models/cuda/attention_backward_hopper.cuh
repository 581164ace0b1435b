// Attention backward on Hopper's tensor cores: as in attention_backward.cuh, but with products of warpgroups. In the first turn
// of a step a warpgroup begins the two products of a tile, scores and dp; in the second it turns them into weights and slopes,
// and begins the products of these.
//
// Legend: as in attention_tile.cuh.
#pragma once

#include "models/cuda/attention_backward.cuh"
#include "models/cuda/attention_hopper_tile.cuh"
#include "models/cuda/attention_softmax.cuh"

namespace spillway::cuda {

// Returns p of a score, which is -infinity where the key is not seen, and replaces the score by the factor on dp - delta. `lse`
// is an exponent of two.
template <bool is_capped>
SPILLWAY_GPU float weight_of(const Gpu& gpu, const Scores& scores, float lse, float& score) {
  const float p = gpu.exp2(score * scores.to_log2 - lse), bent = is_capped ? fmaxf(score, -1.0f) : 0.0f;
  score = is_capped ? p * (1.0f - bent * bent) : p;
  return p;
}

// The two products that a tile's gradients begin with: of queries and keys, and of d_o and values.
template <int n>
struct ProductPair {
  Sums<n> scores, dp;

  // Begins the products of 64 rows of the left tiles, from `row` on, with the n rows of the right tiles. A left tile has `rows`
  // rows.
  template <int D, int rows, typename T>
  SPILLWAY_GPU void begin(const Gpu& gpu, int row, Shared<T> left, Shared<T> right, Shared<T> dp_left, Shared<T> dp_right) {
    gpu.begin_products();
    multiply_rows<D, rows>(gpu, scores, panels_of<T, rows>(left), row, panels_of<T, n>(right));
    gpu.commit_products();
    multiply_rows<D, rows>(gpu, dp, panels_of<T, rows>(dp_left), row, panels_of<T, n>(dp_right));
    gpu.commit_products();
  }
};

// Computes dk and dv. A warpgroup has 64 keys and values of one head, and goes through all queries that see its block's keys, in
// all heads of the group. Products have keys as rows and queries as columns, so that they are the left sides of the products that
// make gradients.
template <typename T, int D>
struct AttendBackwardKeysHopper {
  static constexpr bool kNeedsWarpgroups = true;
  // If rows are short, an SM has room for three blocks.
  static constexpr int kGroups = D <= 64 ? 1 : 2, kBlocks = D <= 64 ? 3 : 1;
  static constexpr int kThreads = 128 * kGroups, kKeys = 64 * kGroups, kQueries = 64;
  using Order = Turns<kGroups>;
  // Tiles of keys and values, then places of queries and d_o, and of the statistics of these queries.
  static constexpr int kTile = kKeys * D, kTurn = kQueries * D;
  using Statistics = QueryStatistics<T, kQueries, true>;
  static constexpr std::int64_t kStatistics = static_cast<std::int64_t>(sizeof(T)) * (2 * kTile + 2 * Order::kPlaces * kTurn);
  static constexpr std::int64_t kShared =
      kStatistics + Order::kPlaces * Statistics::kNumbers * static_cast<std::int64_t>(sizeof(float));
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

    const auto k_tile = gpu.template shared<T>(), v_tile = k_tile + kTile;
    copy_panels<kKeys, D, kThreads>(gpu, k_tile, of.k.head(b * s.keys, kv_head, D), of.k.stride, first_key, sight.keys);
    copy_panels<kKeys, D, kThreads>(gpu, v_tile, of.v.head(b * s.keys, kv_head, D), of.v.stride, first_key, sight.keys);
    const Order turns(gpu);
    const auto q_tile = [&](int i) { return k_tile + (2 * kTile + i % Order::kPlaces * 2 * kTurn); };
    const auto do_tile = [&](int i) { return q_tile(i) + kTurn; };
    const auto numbers = [&](int i) {
      return gpu.template shared<float>(kStatistics) + i % Order::kPlaces * Statistics::kNumbers;
    };
    Statistics statistics;
    Walk next{.tiles = tiles, .head = tiles > 0 ? 0 : group};
    // Begins the copies of the next tile.
    const auto begin = [&](int i) {
      if (next.head >= group) return;
      const std::int64_t head = kv_head * group + next.head;
      const int query = (first_tile + next.tile) * kQueries;
      copy_panels<kQueries, D, kThreads>(gpu, q_tile(i), of.q.head(b * s.queries, head, D), of.q.stride, query, sight.queries);
      copy_panels<kQueries, D, kThreads>(gpu, do_tile(i), of.d_o.head(b * s.queries, head, D), of.d_o.stride, query,
                                         sight.queries);
      // The first warpgroup loads the statistics of all queries: it begins each tile one step ahead.
      if (!turns.is_late()) statistics.load(gpu, of, sight, (b * s.heads + head) * s.queries, query);
      next.go_on();
    };
    begin(0);
    if (turns.is_late()) begin(1);
    gpu.commit_copies();

    Group its(gpu, s, first_key, turns.group() * 64);
    statistics.store(gpu, numbers(0));
    gpu.template wait_for_copies<0>();
    turns.begin(gpu);
    Walk here{.tiles = tiles};
    for (int i = 0; i < group * tiles; ++i, here.go_on()) {
      ProductPair<kQueries> products;
      products.template begin<D, kKeys>(gpu, its.row, k_tile, q_tile(i), v_tile, do_tile(i));
      begin(i + turns.ahead());
      gpu.commit_copies();
      turns.end_first(gpu);
      its.add(gpu, products, sight, (first_tile + here.tile) * kQueries, q_tile(i), do_tile(i), numbers(i));
      if (i + 1 < group * tiles) statistics.store(gpu, numbers(i + 1));
      gpu.template wait_for_copies<0>();
      turns.end_second(gpu);
    }
    turns.finish(gpu);
    const int row = gpu.warp() * 16;
    store_rows(gpu, its.dk, s.scale, s.scale, k_tile + row * D, of.dk.head(b * s.keys, kv_head, D), of.dk.stride, first_key + row,
               sight.keys);
    store_rows(gpu, its.dv, 1.0f, 1.0f, v_tile + row * D, of.dv.head(b * s.keys, kv_head, D), of.dv.stride, first_key + row,
               sight.keys);
  }

 private:
  // Walks through the tiles of queries of each head of the group.
  struct Walk {
    int tiles, tile = 0, head = 0;
    SPILLWAY_GPU void go_on() {
      if (++tile == tiles) tile = 0, ++head;
    }
  };

  // A warp's state for its 16 keys.
  struct Group {
    Sums<D> dk, dv;
    Scores scores;
    int row, warp_key;  // the group's first row in the tiles of keys and values, and the warp's first key

    SPILLWAY_GPU Group(const Gpu& gpu, const ops::AttentionShape& shape, int first_key, int its_row)
        : scores(shape), row(its_row), warp_key(first_key + gpu.warp() * 16) {
      dk.clear(), dv.clear();
    }
    SPILLWAY_GPU void add(const Gpu& gpu, ProductPair<kQueries>& products, const Sight& sight, int query, Shared<T> q_tile,
                          Shared<T> do_tile, Shared<float> numbers) {
      Left<kQueries> weights, slopes;
      gpu.template wait_for_products<1>(products.scores.x);
      if (scores.is_capped()) bend(gpu, scores, products.scores);
      mask(gpu, products.scores, sight, query, numbers);
      if (scores.is_capped()) {
        weigh<true>(gpu, products.scores, numbers, weights);
      } else {
        weigh<false>(gpu, products.scores, numbers, weights);
      }
      gpu.begin_products();
      add_columns(gpu, dv, weights, panels_of<T, kQueries>(do_tile));
      gpu.commit_products();
      gpu.template wait_for_products<1>(products.dp.x);
      SPILLWAY_UNROLL
      for (int j = 0; j < kQueries / 8; ++j) {
        const auto delta = gpu.load((numbers + (kQueries + 8 * j + 2 * (gpu.lane() % 4))).template as<Pack<float, 2>>());
        SPILLWAY_UNROLL
        for (int i = 0; i < 4; ++i) products.dp.x[j][i] = products.scores.x[j][i] * (products.dp.x[j][i] - delta.x[i % 2]);
      }
      round_left<T>(gpu, slopes, products.dp);
      gpu.begin_products();
      add_columns(gpu, dk, slopes, panels_of<T, kQueries>(q_tile));
      gpu.commit_products();
      gpu.template wait_for_products<0>(dv.x);
      gpu.template wait_for_products<0>(dk.x);
    }
    SPILLWAY_GPU void mask(const Gpu& gpu, Sums<kQueries>& products, const Sight& sight, int query, Shared<float> numbers) const {
      const auto first = (numbers + 2 * kQueries).template as<int>();
      if (warp_key + 15 <= sight.last(query) && warp_key >= gpu.load(first + (kQueries - 1))) return;
      SPILLWAY_UNROLL
      for (int j = 0; j < kQueries / 8; ++j) {
        const int column = 8 * j + 2 * (gpu.lane() % 4);
        const auto firsts = gpu.load((first + column).template as<Pack<int, 2>>());
        SPILLWAY_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int key = warp_key + gpu.lane() / 4 + i / 2 * 8;
          if (key > sight.last(query + column + i % 2) || key < firsts.x[i % 2]) products.x[j][i] = -INFINITY;
        }
      }
    }
    template <bool is_capped>
    SPILLWAY_GPU void weigh(const Gpu& gpu, Sums<kQueries>& products, Shared<float> numbers, Left<kQueries>& weights) const {
      SPILLWAY_UNROLL
      for (int j = 0; j < kQueries / 8; ++j) {
        const auto lse = gpu.load((numbers + (8 * j + 2 * (gpu.lane() % 4))).template as<Pack<float, 2>>());
        float p[4];
        SPILLWAY_UNROLL
        for (int i = 0; i < 4; ++i) p[i] = weight_of<is_capped>(gpu, scores, lse.x[i % 2], products.x[j][i]);
        weights.x[j / 2][j % 2 * 2] = gpu.template pack<T>(p[0], p[1]);
        weights.x[j / 2][j % 2 * 2 + 1] = gpu.template pack<T>(p[2], p[3]);
      }
    }
  };
};

// Computes dq. A warpgroup has 64 queries of one head, and goes through the keys and values that its block sees.
template <typename T, int D>
struct AttendBackwardQueriesHopper {
  static constexpr bool kNeedsWarpgroups = true;
  static constexpr int kGroups = D <= 64 ? 1 : 2, kBlocks = D <= 64 ? 3 : 1;
  static constexpr int kThreads = 128 * kGroups, kQueries = 64 * kGroups, kKeys = 64;
  using Order = Turns<kGroups>;
  // Tiles of queries and d_o, then places of keys and values.
  static constexpr int kTile = kQueries * D, kTurn = kKeys * D;
  static constexpr std::int64_t kShared = static_cast<std::int64_t>(sizeof(T)) * (2 * kTile + 2 * Order::kPlaces * kTurn);
  AttentionOperands<T> of;

  static Grid grid(const ops::AttentionShape& s) {
    return {.blocks = (s.queries + kQueries - 1) / kQueries * s.sequences * s.heads, .shared_bytes = kShared};
  }

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const ops::AttentionShape& s = of.shape;
    const QueryTile mine(gpu, s, kQueries);
    const std::int64_t head = mine.head, b = mine.b, kv_head = head / (s.heads / s.kv_heads);
    const Sight sight(gpu, of, b);
    const int end_query = mine.first + kQueries < sight.queries ? mine.first + kQueries : sight.queries;
    const int first_tile = sight.first(gpu, mine.first) / kKeys, last_tile = sight.last(end_query - 1) / kKeys;

    const auto q_tile = gpu.template shared<T>(), do_tile = q_tile + kTile;
    const Order turns(gpu);
    const auto k_tile = [&](int tile) { return q_tile + (2 * kTile + tile % Order::kPlaces * 2 * kTurn); };
    const auto v_tile = [&](int tile) { return k_tile(tile) + kTurn; };
    const auto begin = [&](int tile) {
      if (tile > last_tile) return;
      copy_panels<kKeys, D, kThreads>(gpu, k_tile(tile), of.k.head(b * s.keys, kv_head, D), of.k.stride, tile * kKeys,
                                      sight.keys);
      copy_panels<kKeys, D, kThreads>(gpu, v_tile(tile), of.v.head(b * s.keys, kv_head, D), of.v.stride, tile * kKeys,
                                      sight.keys);
    };
    copy_panels<kQueries, D, kThreads>(gpu, q_tile, of.q.head(b * s.queries, head, D), of.q.stride, mine.first, sight.queries);
    copy_panels<kQueries, D, kThreads>(gpu, do_tile, of.d_o.head(b * s.queries, head, D), of.d_o.stride, mine.first,
                                       sight.queries);
    begin(first_tile);
    if (turns.is_late()) begin(first_tile + 1);
    gpu.commit_copies();
    Group group(gpu, of, sight, (b * s.heads + head) * s.queries, mine.first, turns.group() * 64);
    gpu.template wait_for_copies<0>();
    turns.begin(gpu);
    for (int tile = first_tile; tile <= last_tile; ++tile) {
      ProductPair<kKeys> products;
      products.template begin<D, kQueries>(gpu, group.row, q_tile, k_tile(tile), do_tile, v_tile(tile));
      begin(tile + turns.ahead());
      gpu.commit_copies();
      turns.end_first(gpu);
      group.add(gpu, products, sight, tile * kKeys, k_tile(tile));
      gpu.template wait_for_copies<0>();
      turns.end_second(gpu);
    }
    turns.finish(gpu);
    store_rows(gpu, group.dq, s.scale, s.scale, q_tile + gpu.warp() * 16 * D, of.dq.head(b * s.queries, head, D), of.dq.stride,
               group.warp_query, sight.queries);
  }

 private:
  // A warp's state for its 16 queries. A lane has rows lane / 4 and lane / 4 + 8.
  struct Group {
    Sums<D> dq;
    Scores scores;
    int row, warp_query;     // the group's first row in the tiles of queries and d_o, and the warp's first query
    int last, all_see_from;  // all queries see the keys from all_see_from to last
    float lse[2], delta[2];

    SPILLWAY_GPU Group(const Gpu& gpu, const AttentionOperands<T>& of, const Sight& sight, std::int64_t at, int first_query,
                       int its_row)
        : scores(of.shape), row(its_row), warp_query(first_query + gpu.warp() * 16) {
      dq.clear();
      last = sight.last(warp_query), all_see_from = sight.first(gpu, warp_query + 15);
      SPILLWAY_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int t = warp_query + 8 * half + gpu.lane() / 4;
        // Queries beyond the last have no weight.
        lse[half] = t < sight.queries ? gpu.load(of.lse + at + t) * kLog2E : INFINITY;
        delta[half] = t < sight.queries ? gpu.load(of.delta + at + t) : 0.0f;
      }
    }
    SPILLWAY_GPU void add(const Gpu& gpu, ProductPair<kKeys>& products, const Sight& sight, int first_key, Shared<T> k_tile) {
      gpu.template wait_for_products<1>(products.scores.x);
      if (scores.is_capped()) bend(gpu, scores, products.scores);
      if (first_key + kKeys - 1 > last || first_key < all_see_from) mask(gpu, sight, products.scores, warp_query, first_key);
      if (scores.is_capped()) {
        weigh<true>(gpu, products.scores);
      } else {
        weigh<false>(gpu, products.scores);
      }
      gpu.template wait_for_products<0>(products.dp.x);
      SPILLWAY_UNROLL
      for (int j = 0; j < kKeys / 8; ++j) {
        SPILLWAY_UNROLL
        for (int i = 0; i < 4; ++i) products.dp.x[j][i] = products.scores.x[j][i] * (products.dp.x[j][i] - delta[i / 2]);
      }
      Left<kKeys> slopes;
      round_left<T>(gpu, slopes, products.dp);
      gpu.begin_products();
      add_columns(gpu, dq, slopes, panels_of<T, kKeys>(k_tile));
      gpu.commit_products();
      gpu.template wait_for_products<0>(dq.x);
    }
    template <bool is_capped>
    SPILLWAY_GPU void weigh(const Gpu& gpu, Sums<kKeys>& products) const {
      SPILLWAY_UNROLL
      for (int j = 0; j < kKeys / 8; ++j) {
        SPILLWAY_UNROLL
        for (int i = 0; i < 4; ++i) weight_of<is_capped>(gpu, scores, lse[i / 2], products.x[j][i]);
      }
    }
  };
};

}  // namespace spillway::cuda
