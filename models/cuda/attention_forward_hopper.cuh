// Attention forward on Hopper's tensor cores. A warpgroup has 64 queries of one head, and goes through the keys and values that
// its block sees, tile by tile. In the first turn of a step it begins the products with the next tile's keys and with this tile's
// values; in the second it makes the softmax of the former.
//
// Legend: as in attention_tile.cuh.
#pragma once

#include "models/cuda/attention_hopper_tile.cuh"
#include "models/cuda/attention_softmax.cuh"

namespace spillway::cuda {

template <typename T, int D>
struct AttendForwardHopper {
  static constexpr bool kNeedsWarpgroups = true;
  // If rows are short, tiles are smaller, and an SM has room for two blocks.
  static constexpr int kGroups = 2, kThreads = 128 * kGroups, kQueries = 64 * kGroups;
  static constexpr int kKeys = D <= 64 ? 64 : 128, kBlocks = D <= 64 ? 2 : 1;
  using Order = Turns<kGroups>;
  // Tiles of queries, of keys and of values.
  static constexpr int kTile = kKeys * D;
  static constexpr std::int64_t kShared = static_cast<std::int64_t>(sizeof(T)) * (kQueries * D + 2 * Order::kPlaces * kTile);
  AttentionOperands<T> of;

  static Grid grid(const ops::AttentionShape& s) {
    return {.blocks = (s.queries + kQueries - 1) / kQueries * s.sequences * s.heads, .shared_bytes = kShared};
  }

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const ops::AttentionShape& s = of.shape;
    const QueryTile mine(gpu, s, kQueries);
    const std::int64_t head = mine.head, b = mine.b;
    const Sight sight(gpu, of, b);
    const T* const keys = of.k.head(b * s.keys, head / (s.heads / s.kv_heads), D);
    const T* const values = of.v.head(b * s.keys, head / (s.heads / s.kv_heads), D);
    const int end_query = mine.first + kQueries < sight.queries ? mine.first + kQueries : sight.queries;
    const int first_tile = sight.first(gpu, mine.first) / kKeys, last_tile = sight.last(end_query - 1) / kKeys;

    const Order turns(gpu);
    const auto q_tile = gpu.template shared<T>();
    const auto k_tile = [&](int tile) { return q_tile + (kQueries * D + (tile - first_tile) % Order::kPlaces * kTile); };
    const auto v_tile = [&](int tile) { return k_tile(tile) + Order::kPlaces * kTile; };
    const auto begin_keys = [&](int tile) {
      if (tile <= last_tile) copy_panels<kKeys, D, kThreads>(gpu, k_tile(tile), keys, of.k.stride, tile * kKeys, sight.keys);
    };
    // Begins the copies that the step of a tile needs.
    const auto begin = [&](int tile) {
      begin_keys(tile + 1);
      if (tile <= last_tile) copy_panels<kKeys, D, kThreads>(gpu, v_tile(tile), values, of.v.stride, tile * kKeys, sight.keys);
    };
    copy_panels<kQueries, D, kThreads>(gpu, q_tile, of.q.head(b * s.queries, head, D), of.q.stride, mine.first, sight.queries);
    begin_keys(first_tile);
    gpu.commit_copies();
    begin(first_tile);
    if (turns.is_late()) begin(first_tile + 1);
    gpu.commit_copies();

    Group group(gpu, s, sight, mine.first, turns.group() * 64);
    const auto queries = panels_of<T, kQueries>(q_tile);
    gpu.template wait_for_copies<1>();
    share_with_products(gpu);
    group.weigh_first(gpu, sight, queries, k_tile(first_tile), first_tile * kKeys);
    gpu.template wait_for_copies<0>();
    turns.begin(gpu);
    for (int tile = first_tile; tile < last_tile; ++tile) {
      Sums<kKeys> products;
      gpu.begin_products();
      group.multiply_keys(gpu, products, queries, k_tile(tile + 1));
      group.add_values(gpu, v_tile(tile));
      begin(tile + turns.ahead());
      gpu.commit_copies();
      turns.end_first(gpu);
      gpu.template wait_for_products<1>(products.x);
      const RowFactors before = group.weigh(gpu, sight, products, (tile + 1) * kKeys);
      gpu.template wait_for_products<0>(group.sums.x);
      scale_rows(group.sums, before);
      round_left<T>(gpu, group.weights, products);
      gpu.template wait_for_copies<0>();
      turns.end_second(gpu);
    }
    gpu.begin_products();
    group.add_values(gpu, v_tile(last_tile));
    gpu.template wait_for_products<0>(group.sums.x);
    turns.finish(gpu);
    float* const lse = of.lse == nullptr ? nullptr : of.lse + (b * s.heads + head) * s.queries;
    group.finish(gpu, q_tile + gpu.warp() * 16 * D, of.o.head(b * s.queries, head, D), of.o.stride, lse, sight.queries);
  }

 private:
  // A warp's state for its 16 queries of the group.
  struct Group {
    Left<kKeys> weights;
    Sums<D> sums;
    Softmax softmax;
    Scores scores;
    int row, warp_query;     // the group's first row in the tile of queries, and the warp's first query
    int last, all_see_from;  // all queries see the keys from all_see_from to last

    SPILLWAY_GPU Group(const Gpu& gpu, const ops::AttentionShape& shape, const Sight& sight, int first_query, int its_row)
        : scores(shape), row(its_row), warp_query(first_query + gpu.warp() * 16) {
      last = sight.last(warp_query), all_see_from = sight.first(gpu, warp_query + 15);
      sums.clear();
    }
    SPILLWAY_GPU void multiply_keys(const Gpu& gpu, Sums<kKeys>& products, const Panels<T>& queries, Shared<T> keys) const {
      multiply_rows<D, kQueries>(gpu, products, queries, row, panels_of<T, kKeys>(keys));
      gpu.commit_products();
    }
    SPILLWAY_GPU void add_values(const Gpu& gpu, Shared<T> values) {
      add_columns(gpu, sums, weights, panels_of<T, kKeys>(values));
      gpu.commit_products();
    }
    SPILLWAY_GPU RowFactors weigh(const Gpu& gpu, const Sight& sight, Sums<kKeys>& products, int first_key) {
      if (scores.is_capped()) bend(gpu, scores, products);
      if (first_key < all_see_from || first_key + kKeys - 1 > last) mask(gpu, sight, products, warp_query, first_key);
      const RowFactors before = softmax.soften(gpu, scores, products);
      gpu.settle(softmax.total[0] + softmax.total[1]);  // the powers are computed while products with values are in flight
      return before;
    }
    SPILLWAY_GPU void weigh_first(const Gpu& gpu, const Sight& sight, const Panels<T>& queries, Shared<T> keys, int first_key) {
      Sums<kKeys> products;
      gpu.begin_products();
      multiply_keys(gpu, products, queries, keys);
      gpu.template wait_for_products<0>(products.x);
      weigh(gpu, sight, products, first_key);
      round_left<T>(gpu, weights, products);
    }
    SPILLWAY_GPU void finish(const Gpu& gpu, Shared<T> tile, T* rows, std::int64_t stride, float* lse, int end) const {
      const RowFactors factors = softmax.finish(gpu, scores, lse, warp_query, end);
      store_rows(gpu, sums, factors.x[0], factors.x[1], tile, rows, stride, warp_query, end);
    }
  };
};

}  // namespace spillway::cuda
