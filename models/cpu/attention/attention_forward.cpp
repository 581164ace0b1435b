// Attention's forward: keys and values are packed once for each key/value head; then a task is one query block of one head.
// Not here: the inner loops (attention_kernels.h).
#include <algorithm>
#include <cmath>

#include "models/cpu/attention/attention_layout.h"

namespace spillway::ops {
namespace {

using namespace attention;

constexpr std::int64_t kForwardQueryBlock = 96;
static_assert(kForwardQueryBlock % kStripRows == 0);

struct ForwardShared {
  ForwardShared(const AttentionShape& s, const Layout& layout, Carver& carver)
      : k_transposed(carver.take<Unit>(s.sequences * s.kv_heads * layout.key_blocks * layout.transposed())),
        v_joined(carver.take<Unit>(s.sequences * s.kv_heads * layout.key_blocks * layout.joined())) {}
  Unit* k_transposed;  // [B, Hkv, key blocks, Du, kKeyBlock]
  Unit* v_joined;      // [B, Hkv, key blocks, kKeyBlock / unit, Dp]
};

template <typename E>
struct ForwardWorker {
  ForwardWorker(const Layout& layout, Carver& carver)
      : q(carver.take<E>(kForwardQueryBlock * layout.Dp)),
        o(carver.take<float>(kForwardQueryBlock * layout.Dp)),
        maximum(carver.take<float>(kForwardQueryBlock)),
        sums(carver.take<float>(kForwardQueryBlock * kColumns)),
        scores(carver.take<float>(kStripRows * kKeyBlock)),
        weights(carver.take<E>(kStripRows * kKeyBlock)) {}
  E* q;            // [kForwardQueryBlock, Dp]
  float* o;        // [kForwardQueryBlock, Dp]
  float* maximum;  // [kForwardQueryBlock]
  float* sums;     // [kForwardQueryBlock, kColumns]
  float* scores;   // [kStripRows, kKeyBlock]
  E* weights;      // [kStripRows, kKeyBlock]
};

template <typename E>
Bytes forward_worker_bytes(const Layout& layout) {
  Carver carver(nullptr);
  ForwardWorker<E>(layout, carver);
  return carver.used();
}

// Writes a query block's output and log-sum-exp, from its maxima, sums and weighted values.
template <typename E>
void write_rows(const Kernels<E>& kernel, const AttentionShape& s, const Layout& layout, const ForwardWorker<E>& w,
                std::int64_t rows, E* o, std::int64_t o_stride, float* lse) {
  for (std::int64_t row = 0; row < rows; ++row) {
    // A fixed tree over the lanes.
    float sums[4] = {};
    for (std::int64_t lane = 0; lane < kColumns; ++lane) sums[lane % 4] += w.sums[row * kColumns + lane];
    const float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    kernel.write_sum({w.o + row * layout.Dp, 1, 0}, 1.0f / sum, s.head_dim, o + row * o_stride);
    lse[row] = w.maximum[row] * kLn2 + std::log(sum);
  }
}

template <typename E>
void forward_block(const Kernels<E>& kernel, const AttentionShape& s, const Layout& layout, const ForwardWorker<E>& w,
                   const Unit* k_transposed, const Unit* v_joined, const RowBlock<E>& q, std::int64_t first,
                   const std::int32_t* first_key, E* o, std::int64_t o_stride, float* lse) {
  kernel.copy_rows(q, w.q, layout.Dp);
  // Far below every score, yet finite: a row that sees nothing of a block leaves its sums as they are.
  std::fill_n(w.maximum, q.rows, -1e30f);
  std::fill_n(w.sums, q.rows * kColumns, 0.0f);
  const std::int64_t begin = first_seen(s, first_key, first) / kKeyBlock, end = blocks(s.key_offset + first + q.rows, kKeyBlock);
  for (std::int64_t block = begin; block < end; ++block) {
    const Unit* k = k_transposed + block * layout.transposed();
    const Unit* v = v_joined + block * layout.joined();
    for (std::int64_t row = 0; row < q.rows; row += kStripRows) {
      const std::int64_t rows = std::min(kStripRows, q.rows - row);
      const Seen see = seen(s, first_key, first + row, rows, block * kKeyBlock);
      float factors[kStripRows] = {};
      const Start start = block == begin ? Start::write : Start::scale;
      if (see.columns == 0 && start != Start::write) continue;
      kernel.product({.a = reinterpret_cast<const Unit*>(w.q + row * layout.Dp),
                      .a_row = layout.row_units(),
                      .a_unit = 1,
                      .b = k,
                      .b_stride = kKeyBlock,
                      .c = w.scores,
                      .c_stride = kKeyBlock,
                      .rows = rows,
                      .columns = see.columns,
                      .units = layout.Du,
                      .start = Start::write,
                      .factors = nullptr});
      squash_if_capped(s, w.scores, rows, see.columns);
      kernel.softmax({.scores = w.scores,
                      .stride = kKeyBlock,
                      .rows = rows,
                      .columns = see.columns,
                      .sight = see.sight,
                      .scale = score_scale(s),
                      .maximum = w.maximum + row,
                      .sums = w.sums + row * kColumns,
                      .factors = factors,
                      .weights = w.weights});
      kernel.product({.a = reinterpret_cast<const Unit*>(w.weights),
                      .a_row = kKeyBlock / layout.unit,
                      .a_unit = 1,
                      .b = v,
                      .b_stride = layout.Dp,
                      .c = w.o + row * layout.Dp,
                      .c_stride = layout.Dp,
                      .rows = rows,
                      .columns = layout.Dp,
                      .units = see.columns / layout.unit,
                      .start = start,
                      .factors = factors});
    }
  }
  write_rows(kernel, s, layout, w, q.rows, o, o_stride, lse);
}

}  // namespace

Bytes attention_forward_scratch_bytes(const AttentionShape& shape, DType type, int threads) {
  check(shape);
  const Layout layout(shape, unit_elements(type));
  Carver carver(nullptr);
  ForwardShared(shape, layout, carver);
  return carver.used() +
         threads * (type == DType::float32 ? forward_worker_bytes<float>(layout) : forward_worker_bytes<BFloat16>(layout));
}

template <typename E>
void attention_forward(const ThreadPool& pool, const AttentionShape& s, const AttentionInputs<E>& in, AttentionRows<E> o,
                       float* lse, std::byte* scratch, AttentionPath path) {
  check(s);
  const Layout layout(s, unit_elements(kType<E>));
  const Kernels<E>& kernel = kernels<E>(path);
  Carver carver(scratch);
  const ForwardShared shared(s, layout, carver);
  std::byte* const workers = scratch + carver.used();
  const Bytes worker_bytes = forward_worker_bytes<E>(layout);

  pool.parallel_for(s.sequences * s.kv_heads * layout.key_blocks, [&](std::int64_t task, int) {
    const std::int64_t block = task % layout.key_blocks, head = task / layout.key_blocks % s.kv_heads,
                       b = task / layout.key_blocks / s.kv_heads;
    kernel.transpose(key_rows(s, in.k, b, head, block), shared.k_transposed + task * layout.transposed(), kKeyBlock);
    kernel.join_rows(key_rows(s, in.v, b, head, block), shared.v_joined + task * layout.joined(), layout.Dp);
  });

  const std::int64_t query_blocks = blocks(s.queries, kForwardQueryBlock);
  pool.parallel_for(s.sequences * s.heads * query_blocks, [&](std::int64_t task, int worker) {
    const std::int64_t block = task % query_blocks, head = task / query_blocks % s.heads, b = task / query_blocks / s.heads;
    const std::int64_t begin = block * kForwardQueryBlock, rows = std::min(kForwardQueryBlock, s.queries - begin);
    const std::int64_t kv = (b * s.kv_heads + head / (s.heads / s.kv_heads)) * layout.key_blocks;
    Carver own(workers + worker * worker_bytes);
    const ForwardWorker<E> w(layout, own);
    const RowBlock<E> q{in.q.data + (b * s.queries + begin) * in.q.stride + head * s.head_dim, in.q.stride, rows, rows,
                        s.head_dim};
    forward_block(kernel, s, layout, w, shared.k_transposed + kv * layout.transposed(), shared.v_joined + kv * layout.joined(), q,
                  begin, first_keys_of(s, in, b), o.data + (b * s.queries + begin) * o.stride + head * s.head_dim, o.stride,
                  lse + (b * s.heads + head) * s.queries + begin);
  });
}

template void attention_forward(const ThreadPool&, const AttentionShape&, const AttentionInputs<float>&, AttentionRows<float>,
                                float*, std::byte*, AttentionPath);
template void attention_forward(const ThreadPool&, const AttentionShape&, const AttentionInputs<BFloat16>&,
                                AttentionRows<BFloat16>, float*, std::byte*, AttentionPath);

}  // namespace spillway::ops
