// Attention's backward. A task is one query head, taken key block by key block, so that dK and dV of a block gather while the
// head's dQ stays in this worker's cache; the heads of a group are then added in order. If heads are few, a head's key blocks are
// dealt out to several tasks, whose dQ are added in order too.
// Not here: the inner loops (attention_kernels.h).
#include <algorithm>
#include <limits>

#include "models/cpu/attention/attention_layout.h"

namespace spillway::ops {
namespace {

using namespace attention;

constexpr std::int64_t kBackwardQueryBlock = 192;
static_assert(kBackwardQueryBlock % kStripRows == 0);
constexpr std::int64_t kWaveTasks = 32;    // enough for 16 threads; more would only cost memory
constexpr std::int64_t kFewestTasks = 16;  // fewer heads than this are cut into shares of key blocks

// Number of sequences whose heads are in work together. Their partial sums of dK and dV must be kept.
std::int64_t wave_sequences(const AttentionShape& s) { return std::min(s.sequences, blocks(kWaveTasks, s.heads)); }

// Number of tasks that share a head. Share i takes every shares-th key block from block i on, so that all have as much of the
// triangle.
std::int64_t head_shares(const AttentionShape& s) {
  return std::min(blocks(s.keys, kKeyBlock), blocks(kFewestTasks, wave_sequences(s) * s.heads));
}

constexpr std::int64_t padded_queries(const AttentionShape& s) { return up(s.queries, 2); }

struct BackwardShared {
  BackwardShared(const AttentionShape& s, const Layout& layout, Carver& carver)
      : k_transposed(carver.take<Unit>(wave_sequences(s) * s.kv_heads * layout.key_blocks * layout.transposed())),
        v_transposed(carver.take<Unit>(wave_sequences(s) * s.kv_heads * layout.key_blocks * layout.transposed())),
        k_joined(carver.take<Unit>(wave_sequences(s) * s.kv_heads * layout.key_blocks * layout.joined())),
        dk(carver.take<float>(wave_sequences(s) * s.heads * layout.key_blocks * kKeyBlock * layout.Dp)),
        dv(carver.take<float>(wave_sequences(s) * s.heads * layout.key_blocks * kKeyBlock * layout.Dp)),
        dq(head_shares(s) == 1
               ? nullptr
               : carver.take<float>(wave_sequences(s) * s.heads * head_shares(s) * padded_queries(s) * layout.Dp)) {}
  Unit* k_transposed;  // [wave, Hkv, key blocks, Du, kKeyBlock]
  Unit* v_transposed;  // [wave, Hkv, key blocks, Du, kKeyBlock]
  Unit* k_joined;      // [wave, Hkv, key blocks, kKeyBlock / unit, Dp]
  float* dk;           // [wave, Hq, key blocks * kKeyBlock, Dp]
  float* dv;           // [wave, Hq, key blocks * kKeyBlock, Dp]
  float* dq;           // [wave, Hq, shares, Tq, Dp]; if a head has one task, its dQ is in BackwardWorker::dq
};

template <typename E>
struct BackwardWorker {
  BackwardWorker(const AttentionShape& s, const Layout& layout, Carver& carver)
      : q(carver.take<E>(padded_queries(s) * layout.Dp)),
        d_o(carver.take<E>(padded_queries(s) * layout.Dp)),
        q_joined(carver.take<Unit>(padded_queries(s) / layout.unit * layout.Dp)),
        d_o_joined(carver.take<Unit>(padded_queries(s) / layout.unit * layout.Dp)),
        dq(head_shares(s) == 1 ? carver.take<float>(padded_queries(s) * layout.Dp) : nullptr),
        lse(carver.take<float>(padded_queries(s))),
        delta(carver.take<float>(padded_queries(s))),
        scores(carver.take<float>(kStripRows * kKeyBlock)),
        d_weights(carver.take<float>(kStripRows * kKeyBlock)),
        p_units(carver.take<Unit>(kBackwardQueryBlock / layout.unit * kKeyBlock)),
        ds_units(carver.take<Unit>(kBackwardQueryBlock / layout.unit * kKeyBlock)),
        ds_rows(layout.unit == 1 ? reinterpret_cast<E*>(ds_units) : carver.take<E>(kBackwardQueryBlock * kKeyBlock)) {}
  E* q;              // [Tq, Dp]
  E* d_o;            // [Tq, Dp]
  Unit* q_joined;    // [Tq / unit, Dp]
  Unit* d_o_joined;  // [Tq / unit, Dp]
  float* dq;         // [Tq, Dp]
  float* lse;        // [Tq], to the base 2
  float* delta;      // [Tq]: sum of d_o * o
  float* scores;     // [kStripRows, kKeyBlock]
  float* d_weights;  // [kStripRows, kKeyBlock]
  Unit* p_units;     // [kBackwardQueryBlock / unit, kKeyBlock]
  Unit* ds_units;    // [kBackwardQueryBlock / unit, kKeyBlock]
  E* ds_rows;        // [kBackwardQueryBlock, kKeyBlock]
};

template <typename E>
Bytes backward_worker_bytes(const AttentionShape& s, const Layout& layout) {
  Carver carver(nullptr);
  BackwardWorker<E>(s, layout, carver);
  return carver.used();
}

// One head's keys and values, packed, and the sums of its gradients.
struct HeadBlocks {
  const Unit* k_transposed;  // [key blocks, Du, kKeyBlock]
  const Unit* v_transposed;  // [key blocks, Du, kKeyBlock]
  const Unit* k_joined;      // [key blocks, kKeyBlock / unit, Dp]
  float* dk;                 // [key blocks * kKeyBlock, Dp]
  float* dv;                 // [key blocks * kKeyBlock, Dp]
  float* dq;                 // [Tq, Dp], of this share
  std::int64_t share;
  const std::int32_t* first_key;  // [Tq], or null
  bool sees_all_before(const AttentionShape& s) const { return s.window == 0 && first_key == nullptr; }
};

// Takes queries [begin, begin + rows) against one key block: p and ds go into the worker's buffers, dQ into its sum.
template <typename E>
void gradient_block(const Kernels<E>& kernel, const AttentionShape& s, const Layout& layout, const BackwardWorker<E>& w,
                    const HeadBlocks& head, std::int64_t block, std::int64_t begin, std::int64_t rows_total) {
  const Unit* k = head.k_transposed + block * layout.transposed();
  const Unit* v = head.v_transposed + block * layout.transposed();
  const auto gradient = s.softcap == 0 ? kernel.gradient : kernel.gradient_capped;
  for (std::int64_t row = 0; row < rows_total; row += kStripRows) {
    const std::int64_t rows = std::min(kStripRows, rows_total - row), query = begin + row;
    const Seen see = seen(s, head.first_key, query, rows, block * kKeyBlock);
    const auto product = [&](const E* a, const Unit* b, float* c) {
      kernel.product({.a = reinterpret_cast<const Unit*>(a + query * layout.Dp),
                      .a_row = layout.row_units(),
                      .a_unit = 1,
                      .b = b,
                      .b_stride = kKeyBlock,
                      .c = c,
                      .c_stride = kKeyBlock,
                      .rows = rows,
                      .columns = see.columns,
                      .units = layout.Du,
                      .start = Start::write,
                      .factors = nullptr});
    };
    product(w.q, k, w.scores);
    product(w.d_o, v, w.d_weights);
    const std::int64_t at = row / layout.unit * kKeyBlock;
    squash_if_capped(s, w.scores, rows, see.columns);
    gradient({.scores = w.scores,
              .d_weights = w.d_weights,
              .stride = kKeyBlock,
              .rows = rows,
              .columns = see.columns,
              .sight = see.sight,
              .scale = score_scale(s),
              .lse = w.lse + query,
              .delta = w.delta + query,
              .p_units = w.p_units + at,
              .ds_units = w.ds_units + at,
              .ds_rows = w.ds_rows + row * kKeyBlock});
    // The products over queries read whole rows, so the columns that no row sees are zeroed.
    for (std::int64_t unit = 0; unit < rows / layout.unit && see.columns < kKeyBlock; ++unit) {
      std::fill(w.p_units + at + unit * kKeyBlock + see.columns, w.p_units + at + (unit + 1) * kKeyBlock, 0u);
      std::fill(w.ds_units + at + unit * kKeyBlock + see.columns, w.ds_units + at + (unit + 1) * kKeyBlock, 0u);
    }
    kernel.product({.a = reinterpret_cast<const Unit*>(w.ds_rows + row * kKeyBlock),
                    .a_row = kKeyBlock / layout.unit,
                    .a_unit = 1,
                    .b = head.k_joined + block * layout.joined(),
                    .b_stride = layout.Dp,
                    .c = head.dq + query * layout.Dp,
                    .c_stride = layout.Dp,
                    .rows = rows,
                    .columns = layout.Dp,
                    .units = see.columns / layout.unit,
                    .start = block == 0 && head.sees_all_before(s) ? Start::write : Start::add,
                    .factors = nullptr});
  }
}

// The index behind the last query that may see the key or one after it, rounded up to a whole pair.
std::int64_t end_of_queries(const AttentionShape& s, const std::int32_t* first_key, std::int64_t key) {
  const std::int64_t Tq = padded_queries(s);
  std::int64_t end = s.window == 0 ? Tq : std::min(Tq, up(std::max<std::int64_t>(0, key + s.window - s.key_offset), 2));
  if (first_key != nullptr) end = std::min(end, up(std::upper_bound(first_key, first_key + s.queries, key) - first_key, 2));
  return end;
}

template <typename E>
void backward_head(const Kernels<E>& kernel, const AttentionShape& s, const Layout& layout, const BackwardWorker<E>& w,
                   const HeadBlocks& head) {
  const std::int64_t Tq = padded_queries(s);
  // If every query sees the first block, that block's product begins the sum.
  if (!head.sees_all_before(s) || head.share != 0) std::fill_n(head.dq, Tq * layout.Dp, 0.0f);
  for (std::int64_t block = head.share; block < layout.key_blocks; block += head_shares(s)) {
    const std::int64_t key_begin = block * kKeyBlock, keys = std::min(kKeyBlock, s.keys - key_begin);
    float* dk = head.dk + key_begin * layout.Dp;
    float* dv = head.dv + key_begin * layout.Dp;
    // Queries that see anything of the block, from an even one on, because pairs of rows stay together.
    const std::int64_t begin = std::max<std::int64_t>(0, key_begin - s.key_offset) / 2 * 2;
    const std::int64_t end = end_of_queries(s, head.first_key, key_begin + keys - 1);
    if (begin >= end) {
      std::fill_n(dk, keys * layout.Dp, 0.0f);
      std::fill_n(dv, keys * layout.Dp, 0.0f);
    }
    for (std::int64_t query = begin; query < end; query += kBackwardQueryBlock) {
      const std::int64_t rows = std::min(kBackwardQueryBlock, end - query);
      gradient_block(kernel, s, layout, w, head, block, query, rows);
      for (std::int64_t key = 0; key < keys; key += kStripRows) {
        // Queries before this strip of keys do not see it.
        const std::int64_t skip = std::clamp<std::int64_t>(key_begin + key - s.key_offset - query, 0, rows) / layout.unit;
        const auto product = [&](const Unit* a, const Unit* b, float* c) {
          kernel.product({.a = a + skip * kKeyBlock + key,
                          .a_row = 1,
                          .a_unit = kKeyBlock,
                          .b = b + (query / layout.unit + skip) * layout.Dp,
                          .b_stride = layout.Dp,
                          .c = c + key * layout.Dp,
                          .c_stride = layout.Dp,
                          .rows = std::min(kStripRows, keys - key),
                          .columns = layout.Dp,
                          .units = rows / layout.unit - skip,
                          .start = query == begin ? Start::write : Start::add,
                          .factors = nullptr});
        };
        product(w.p_units, w.d_o_joined, dv);
        product(w.ds_units, w.q_joined, dk);
      }
    }
  }
}

// Sequences [first, first + sequences) of the batch, whose heads are in work together. A head's index counts within them.
template <typename E>
struct Wave {
  const Kernels<E>& kernel;
  const AttentionShape& s;
  const Layout& layout;
  const AttentionInputs<E>& in;
  const AttentionOutputs<E>& out;
  const AttentionGradients<E>& gradients;
  const BackwardShared& shared;
  const std::int64_t first;
  const std::int64_t sequences = std::min(wave_sequences(s), s.sequences - first);
  const std::int64_t group = s.heads / s.kv_heads, head_floats = layout.key_blocks * kKeyBlock * layout.Dp;
  const std::int64_t shares = head_shares(s), Tq = padded_queries(s);

  void pack_keys(const ThreadPool& pool) const {
    pool.parallel_for(sequences * s.kv_heads * layout.key_blocks, [&](std::int64_t task, int) {
      const std::int64_t block = task % layout.key_blocks, head = task / layout.key_blocks % s.kv_heads,
                         b = first + task / layout.key_blocks / s.kv_heads;
      const RowBlock<E> k = key_rows(s, in.k, b, head, block);
      kernel.transpose(k, shared.k_transposed + task * layout.transposed(), kKeyBlock);
      kernel.transpose(key_rows(s, in.v, b, head, block), shared.v_transposed + task * layout.transposed(), kKeyBlock);
      kernel.join_rows(k, shared.k_joined + task * layout.joined(), layout.Dp);
    });
  }

  void go_through_heads(const ThreadPool& pool, std::byte* workers, Bytes worker_bytes) const {
    pool.parallel_for(sequences * s.heads * shares, [&](std::int64_t task, int worker) {
      const std::int64_t index = task / shares, head = index % s.heads;
      const std::int64_t kv = (index / s.heads * s.kv_heads + head / group) * layout.key_blocks;
      Carver own(workers + worker * worker_bytes);
      const BackwardWorker<E> w(s, layout, own);
      pack_queries(w, index);
      float* dq = shares == 1 ? w.dq : shared.dq + task * Tq * layout.Dp;
      backward_head(
          kernel, s, layout, w,
          HeadBlocks{shared.k_transposed + kv * layout.transposed(), shared.v_transposed + kv * layout.transposed(),
                     shared.k_joined + kv * layout.joined(), shared.dk + index * head_floats, shared.dv + index * head_floats, dq,
                     task % shares, first_keys_of(s, in, first + index / s.heads)});
      if (shares == 1) write_queries(index, dq, 0, s.queries);
    });
  }

  void pack_queries(const BackwardWorker<E>& w, std::int64_t index) const {
    const std::int64_t head = index % s.heads, b = first + index / s.heads;
    const auto query_rows = [&](const AttentionRows<const E>& rows) {
      return RowBlock<E>{rows.data + b * s.queries * rows.stride + head * s.head_dim, rows.stride, s.queries, Tq, s.head_dim};
    };
    const RowBlock<E> q = query_rows(in.q), o = query_rows(out.o), d_o = query_rows(out.d_o);
    kernel.copy_rows(q, w.q, layout.Dp);
    kernel.copy_rows(d_o, w.d_o, layout.Dp);
    kernel.join_rows(q, w.q_joined, layout.Dp);
    kernel.join_rows(d_o, w.d_o_joined, layout.Dp);
    for (std::int64_t t = 0; t < Tq; ++t) {
      // A query that only fills up a pair has no weights.
      const bool real = t < s.queries;
      w.lse[t] = real ? out.lse[(b * s.heads + head) * s.queries + t] * kLog2E : std::numeric_limits<float>::infinity();
      w.delta[t] = real ? kernel.dot(o.data + t * o.stride, d_o.data + t * d_o.stride, s.head_dim) : 0.0f;
    }
  }

  // Queries [begin, end) of a head, from the sums of its shares.
  void write_queries(std::int64_t index, const float* sums, std::int64_t begin, std::int64_t end) const {
    const std::int64_t head = index % s.heads, b = first + index / s.heads;
    E* dq = gradients.dq.data + b * s.queries * gradients.dq.stride + head * s.head_dim;
    for (std::int64_t t = begin; t < end; ++t)
      kernel.write_sum({sums + t * layout.Dp, shares, Tq * layout.Dp}, s.scale, s.head_dim, dq + t * gradients.dq.stride);
  }

  void add_shares(const ThreadPool& pool) const {
    const std::int64_t query_blocks = blocks(s.queries, kBackwardQueryBlock);
    pool.parallel_for(sequences * s.heads * query_blocks, [&](std::int64_t task, int) {
      const std::int64_t index = task / query_blocks, begin = task % query_blocks * kBackwardQueryBlock;
      write_queries(index, shared.dq + index * shares * Tq * layout.Dp, begin, std::min(s.queries, begin + kBackwardQueryBlock));
    });
  }

  void add_groups(const ThreadPool& pool) const {
    pool.parallel_for(sequences * s.kv_heads * layout.key_blocks, [&](std::int64_t task, int) {
      const std::int64_t block = task % layout.key_blocks, head = task / layout.key_blocks % s.kv_heads,
                         b = task / layout.key_blocks / s.kv_heads;
      const std::int64_t begin = block * kKeyBlock, keys = std::min(kKeyBlock, s.keys - begin);
      const auto write = [&](const float* sums, float factor, const AttentionRows<E>& rows) {
        const float* sum = sums + (b * s.heads + head * group) * head_floats + begin * layout.Dp;
        E* to = rows.data + ((first + b) * s.keys + begin) * rows.stride + head * s.head_dim;
        for (std::int64_t key = 0; key < keys; ++key)
          kernel.write_sum({sum + key * layout.Dp, group, head_floats}, factor, s.head_dim, to + key * rows.stride);
      };
      write(shared.dk, s.scale, gradients.dk);
      write(shared.dv, 1.0f, gradients.dv);
    });
  }
};

}  // namespace

Bytes attention_backward_scratch_bytes(const AttentionShape& shape, DType type, int threads) {
  check(shape);
  const Layout layout(shape, unit_elements(type));
  Carver carver(nullptr);
  BackwardShared(shape, layout, carver);
  return carver.used() + threads * (type == DType::float32 ? backward_worker_bytes<float>(shape, layout)
                                                           : backward_worker_bytes<BFloat16>(shape, layout));
}

template <typename E>
void attention_backward(const ThreadPool& pool, const AttentionShape& s, const AttentionInputs<E>& in,
                        const AttentionOutputs<E>& out, const AttentionGradients<E>& gradients, std::byte* scratch,
                        AttentionPath path) {
  check(s);
  const Layout layout(s, unit_elements(kType<E>));
  Carver carver(scratch);
  const BackwardShared shared(s, layout, carver);
  std::byte* const workers = scratch + carver.used();
  for (std::int64_t first = 0; first < s.sequences; first += wave_sequences(s)) {
    const Wave<E> wave{kernels<E>(path), s, layout, in, out, gradients, shared, first};
    wave.pack_keys(pool);
    wave.go_through_heads(pool, workers, backward_worker_bytes<E>(s, layout));
    if (head_shares(s) > 1) wave.add_shares(pool);
    wave.add_groups(pool);
  }
}

template void attention_backward(const ThreadPool&, const AttentionShape&, const AttentionInputs<float>&,
                                 const AttentionOutputs<float>&, const AttentionGradients<float>&, std::byte*, AttentionPath);
template void attention_backward(const ThreadPool&, const AttentionShape&, const AttentionInputs<BFloat16>&,
                                 const AttentionOutputs<BFloat16>&, const AttentionGradients<BFloat16>&, std::byte*,
                                 AttentionPath);

}  // namespace spillway::ops
