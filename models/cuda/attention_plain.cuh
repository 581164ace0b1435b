// Attention without tensor cores: any element type, any head size up to 256. It serves fp32, a single query (decoding), and head
// sizes that no tile fits. A block has one row of the result; each group of lanes takes one of the rows that it sees at a time.
// The groups' sums are added up in a fixed order.
//
// Legend: as in attention_tile.cuh.
#pragma once

#include "models/cuda/attention_tile.cuh"

namespace spillway::cuda {

// Memory is read and written in packs of n elements; a row has at most `dimensions`. A row is spread over 8 to 32 lanes, so that
// each has two packs where possible.
template <typename T, int n, int dimensions, int threads>
struct Plain {
  static constexpr int kThreads = threads, kWarps = kThreads / 32;
  static constexpr int kWanted = dimensions / (2 * n), kLanes = kWanted < 8 ? 8 : kWanted < 32 ? kWanted : 32;
  static constexpr int kGroups = kThreads / kLanes, kPacks = dimensions / (kLanes * n);

  // A row of one head, or sums of such rows. Lane i of the group has packs i, i + kLanes and so on.
  struct Row {
    Floats<n> x[kPacks];
  };
  template <typename F>
  SPILLWAY_GPU static void each_pack(const Gpu& gpu, std::int64_t D, const F& f) {
    SPILLWAY_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      const int d = (p * kLanes + gpu.lane() % kLanes) * n;
      if (d < D) f(p, d);
    }
  }
  SPILLWAY_GPU static void clear(Row& row) {
    SPILLWAY_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      SPILLWAY_UNROLL
      for (int i = 0; i < n; ++i) row.x[p].x[i] = 0;
    }
  }
  SPILLWAY_GPU static Row load(const Gpu& gpu, const T* from, std::int64_t D, bool is_there) {
    Row row;
    clear(row);
    if (is_there) each_pack(gpu, D, [&](int p, int d) { row.x[p] = load_floats<T, n>(gpu, from + d); });
    return row;
  }
  // The dot product of two rows, the same in all lanes of the group.
  SPILLWAY_GPU static float dot(const Gpu& gpu, const Row& a, const Row& b) {
    float sum = 0;
    SPILLWAY_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      SPILLWAY_UNROLL
      for (int i = 0; i < n; ++i) sum += a.x[p].x[i] * b.x[p].x[i];
    }
    SPILLWAY_UNROLL
    for (int mask = kLanes / 2; mask > 0; mask /= 2) sum += gpu.shuffle_xor(sum, mask);
    return sum;
  }
  // sums = factor * sums + other * row
  SPILLWAY_GPU static void add(Row& sums, float factor, const Row& row, float other) {
    SPILLWAY_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      SPILLWAY_UNROLL
      for (int i = 0; i < n; ++i) sums.x[p].x[i] = sums.x[p].x[i] * factor + other * row.x[p].x[i];
    }
  }
  SPILLWAY_GPU static float sum_groups(const Gpu& gpu, float x) {
    SPILLWAY_UNROLL
    for (int mask = kLanes; mask < 32; mask *= 2) x += gpu.shuffle_xor(x, mask);
    return x;
  }
  // Adds up the sums of a warp's groups, each times its factor. All groups get the result.
  SPILLWAY_GPU static void sum_groups(const Gpu& gpu, Row& sums, float factor) {
    SPILLWAY_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      SPILLWAY_UNROLL
      for (int i = 0; i < n; ++i) {
        sums.x[p].x[i] = sum_groups(gpu, sums.x[p].x[i] * factor);
      }
    }
  }
  // Leaves a warp's sums in shared memory, as a row of `dimensions`, from which sum_warps() takes them after a barrier. The row
  // lies there by up to 16 bytes of each lane in turn, so that no bank is asked twice.
  static constexpr int kEach = n < 4 ? n : 4, kParts = n / kEach;
  SPILLWAY_GPU static void leave(const Gpu& gpu, const Row& sums, Shared<float> rows, std::int64_t D) {
    if (gpu.lane() >= kLanes) return;
    each_pack(gpu, D, [&](int p, int) {
      SPILLWAY_UNROLL
      for (int part = 0; part < kParts; ++part) {
        Pack<float, kEach> pack;
        SPILLWAY_UNROLL
        for (int i = 0; i < kEach; ++i) pack.x[i] = sums.x[p].x[part * kEach + i];
        const int at = gpu.warp() * dimensions + ((p * kParts + part) * kLanes + gpu.lane()) * kEach;
        gpu.store((rows + at).template as<Pack<float, kEach>>(), pack);
      }
    });
  }
  // Calls f(d, the sum over the warps of weight(warp) * their row's d), spread over the block's threads.
  template <typename W, typename F>
  SPILLWAY_GPU static void sum_warps(const Gpu& gpu, Shared<float> rows, std::int64_t D, const W& weight, const F& f) {
    for (int i = gpu.thread(); i < dimensions; i += kThreads) {
      const int turn = i / (kLanes * kEach), lane = i / kEach % kLanes;
      const int d = (turn / kParts * kLanes + lane) * n + turn % kParts * kEach + i % kEach;
      if (d >= D) continue;
      float sum = 0;
      for (int w = 0; w < kWarps; ++w) sum += weight(w) * gpu.load(rows + (w * dimensions + i));
      f(d, sum);
    }
  }
};

// A score, and its slope with respect to scale * q.k.
struct PlainScore {
  float value, slope = 1;
  SPILLWAY_GPU PlainScore(const ops::AttentionShape& shape, float product) : value(product * shape.scale) {
    if (shape.softcap <= 0) return;
    const float bent = tanhf(value / shape.softcap);
    value = shape.softcap * bent, slope = 1.0f - bent * bent;
  }
};

// The row that a block has of a grid of (B, T, heads).
struct BlocksRow {
  std::int64_t head, t, b;
  SPILLWAY_GPU BlocksRow(const Gpu& gpu, std::int64_t heads, std::int64_t rows)
      : head(gpu.block() % heads), t(gpu.block() / heads % rows), b(gpu.block() / heads / rows) {}
};

template <typename T, int n, int dimensions, int threads>
struct PlainAttend : Plain<T, n, dimensions, threads> {
  using Base = Plain<T, n, dimensions, threads>;
  using typename Base::Row;
  AttentionOperands<T> of;

  static Grid grid(const ops::AttentionShape& s) {
    return {.blocks = s.sequences * s.queries * s.heads,
            .shared_bytes = Base::kWarps * (dimensions + 2) * static_cast<std::int64_t>(sizeof(float))};
  }

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const ops::AttentionShape& s = of.shape;
    const std::int64_t D = s.head_dim;
    const BlocksRow row(gpu, s.heads, s.queries);
    const Sight sight(gpu, of, row.b);
    const int t = static_cast<int>(row.t), first = sight.first(gpu, t), last = sight.last(t);
    const T* const keys = of.k.head(row.b * s.keys, row.head / (s.heads / s.kv_heads), D);
    const T* const values = of.v.head(row.b * s.keys, row.head / (s.heads / s.kv_heads), D);
    const Row query = Base::load(gpu, of.q.head(row.b * s.queries + t, row.head, D), D, true);
    Row sums;
    Base::clear(sums);
    float most = -INFINITY, total = 0;
    for (int begin = first; begin <= last; begin += Base::kGroups) {
      const int key = begin + gpu.thread() / Base::kLanes;
      const bool is_there = key <= last;
      const float product = Base::dot(gpu, query, Base::load(gpu, keys + key * of.k.stride, D, is_there));
      if (!is_there) continue;
      const float score = PlainScore(s, product).value, largest = fmaxf(most, score);
      const float before = expf(most - largest), power = expf(score - largest);
      Base::add(sums, before, Base::load(gpu, values + key * of.v.stride, D, true), power);
      total = total * before + power, most = largest;
    }
    finish(gpu, sums, most, total, row);
  }

 private:
  SPILLWAY_GPU void finish(const Gpu& gpu, Row& sums, float most, float total, const BlocksRow& row) const {
    const ops::AttentionShape& s = of.shape;
    float largest = warp_max(gpu, most);
    // Groups that had no key add nothing.
    const float factor = most == -INFINITY ? 0.0f : expf(most - largest);
    total = Base::sum_groups(gpu, total * factor);
    Base::sum_groups(gpu, sums, factor);
    const auto numbers = gpu.template shared<float>(), rows = numbers + 2 * Base::kWarps;
    if (gpu.lane() == 0) gpu.store(numbers + gpu.warp(), largest), gpu.store(numbers + (Base::kWarps + gpu.warp()), total);
    Base::leave(gpu, sums, rows, s.head_dim);
    gpu.sync();
    largest = -INFINITY;
    for (int w = 0; w < Base::kWarps; ++w) largest = fmaxf(largest, gpu.load(numbers + w));
    const auto weight = [&](int w) {
      const float of_warp = gpu.load(numbers + w);
      return of_warp == -INFINITY ? 0.0f : expf(of_warp - largest);
    };
    total = 0;
    for (int w = 0; w < Base::kWarps; ++w) total += weight(w) * gpu.load(numbers + (Base::kWarps + w));
    T* const o = of.o.head(row.b * s.queries + row.t, row.head, s.head_dim);
    Base::sum_warps(gpu, rows, s.head_dim, weight, [&](int d, float sum) { gpu.store(o + d, from_float<T>(sum / total)); });
    if (of.lse != nullptr && gpu.thread() == 0)
      gpu.store(of.lse + (row.b * s.heads + row.head) * s.queries + row.t, largest + logf(total));
  }
};

// For one query and a key that it sees: p, the weight of the value, and ds, the gradient of q.k.
struct PlainSlope {
  float p, ds;
  SPILLWAY_GPU PlainSlope(const ops::AttentionShape& shape, float product, float dp, float lse, float delta) {
    const PlainScore score(shape, product);
    p = expf(score.value - lse), ds = p * (dp - delta) * score.slope * shape.scale;
  }
};

template <typename T, int n, int dimensions, int threads>
struct PlainBackwardQueries : Plain<T, n, dimensions, threads> {
  using Base = Plain<T, n, dimensions, threads>;
  static constexpr int kBlocks = 1;  // otherwise it spills on sm_89 for the sake of more blocks
  using typename Base::Row;
  AttentionOperands<T> of;

  static Grid grid(const ops::AttentionShape& s) {
    return {.blocks = s.sequences * s.queries * s.heads,
            .shared_bytes = Base::kWarps * dimensions * static_cast<std::int64_t>(sizeof(float))};
  }

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const ops::AttentionShape& s = of.shape;
    const std::int64_t D = s.head_dim;
    const BlocksRow row(gpu, s.heads, s.queries);
    const Sight sight(gpu, of, row.b);
    const int t = static_cast<int>(row.t), first = sight.first(gpu, t), last = sight.last(t);
    const T* const keys = of.k.head(row.b * s.keys, row.head / (s.heads / s.kv_heads), D);
    const T* const values = of.v.head(row.b * s.keys, row.head / (s.heads / s.kv_heads), D);
    const std::int64_t number = (row.b * s.heads + row.head) * s.queries + t;
    const float lse = gpu.load(of.lse + number), delta = gpu.load(of.delta + number);
    const Row query = Base::load(gpu, of.q.head(row.b * s.queries + t, row.head, D), D, true);
    const Row d_o = Base::load(gpu, of.d_o.head(row.b * s.queries + t, row.head, D), D, true);
    Row sums;
    Base::clear(sums);
    for (int begin = first; begin <= last; begin += Base::kGroups) {
      const int key = begin + gpu.thread() / Base::kLanes;
      const bool is_there = key <= last;
      const Row of_key = Base::load(gpu, keys + key * of.k.stride, D, is_there);
      const float product = Base::dot(gpu, query, of_key);
      const float dp = Base::dot(gpu, d_o, Base::load(gpu, values + key * of.v.stride, D, is_there));
      if (is_there) Base::add(sums, 1.0f, of_key, PlainSlope(s, product, dp, lse, delta).ds);
    }
    Base::sum_groups(gpu, sums, 1.0f);
    const auto rows = gpu.template shared<float>();
    Base::leave(gpu, sums, rows, D);
    gpu.sync();
    T* const dq = of.dq.head(row.b * s.queries + t, row.head, D);
    const auto weight = [](int) { return 1.0f; };
    Base::sum_warps(gpu, rows, D, weight, [&](int d, float sum) { gpu.store(dq + d, from_float<T>(sum)); });
  }
};

template <typename T, int n, int dimensions, int threads>
struct PlainBackwardKeys : Plain<T, n, dimensions, threads> {
  using Base = Plain<T, n, dimensions, threads>;
  using typename Base::Row;
  AttentionOperands<T> of;

  static Grid grid(const ops::AttentionShape& s) {
    return {.blocks = s.sequences * s.keys * s.kv_heads,
            .shared_bytes = 2 * Base::kWarps * dimensions * static_cast<std::int64_t>(sizeof(float))};
  }

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const ops::AttentionShape& s = of.shape;
    const std::int64_t D = s.head_dim;
    const BlocksRow row(gpu, s.kv_heads, s.keys);
    const Sight sight(gpu, of, row.b);
    const int key = static_cast<int>(row.t), group = static_cast<int>(s.heads / s.kv_heads);
    // Queries [first, end) of each head of the group see the key.
    const int first = key > sight.offset ? key - sight.offset : 0, end = sight.end_of_queries(gpu, key);
    const int each = end > first ? end - first : 0;
    const Row of_key = Base::load(gpu, of.k.head(row.b * s.keys + key, row.head, D), D, true);
    const Row value = Base::load(gpu, of.v.head(row.b * s.keys + key, row.head, D), D, true);
    Row dk, dv;
    Base::clear(dk), Base::clear(dv);
    for (int begin = 0; begin < group * each; begin += Base::kGroups) {
      const int index = begin + gpu.thread() / Base::kLanes;
      const bool is_there = index < group * each;
      const std::int64_t head = row.head * group + (is_there ? index / each : 0), t = first + (is_there ? index % each : 0);
      const Row query = Base::load(gpu, of.q.head(row.b * s.queries + t, head, D), D, is_there);
      const Row d_o = Base::load(gpu, of.d_o.head(row.b * s.queries + t, head, D), D, is_there);
      const float product = Base::dot(gpu, query, of_key), dp = Base::dot(gpu, d_o, value);
      if (!is_there) continue;
      const std::int64_t number = (row.b * s.heads + head) * s.queries + t;
      const PlainSlope slope(s, product, dp, gpu.load(of.lse + number), gpu.load(of.delta + number));
      Base::add(dk, 1.0f, query, slope.ds);
      Base::add(dv, 1.0f, d_o, slope.p);
    }
    Base::sum_groups(gpu, dk, 1.0f), Base::sum_groups(gpu, dv, 1.0f);
    const auto rows = gpu.template shared<float>(), value_rows = rows + Base::kWarps * dimensions;
    Base::leave(gpu, dk, rows, D), Base::leave(gpu, dv, value_rows, D);
    gpu.sync();
    T *const dk_row = of.dk.head(row.b * s.keys + key, row.head, D), *const dv_row =
                                                                         of.dv.head(row.b * s.keys + key, row.head, D);
    const auto weight = [](int) { return 1.0f; };
    Base::sum_warps(gpu, rows, D, weight, [&](int d, float sum) { gpu.store(dk_row + d, from_float<T>(sum)); });
    Base::sum_warps(gpu, value_rows, D, weight, [&](int d, float sum) { gpu.store(dv_row + d, from_float<T>(sum)); });
  }
};

}  // namespace spillway::cuda
