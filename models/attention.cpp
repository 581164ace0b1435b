#include "models/attention.h"

#include <algorithm>
#include <utility>

#include "memory/error.h"
#include "models/attention_ops.h"

namespace spillway {
namespace {

// Where the values of the unit stand in its calls, and where its parameters lie in the block; -1: there is none.
struct AttentionPlaces {
  int x = -1, y = -1, statistics = -1, qkv = -1, o = -1, lse = -1;                                          // forward
  int cache = -1;  // keys [K, Hkv*D], then values [K, Hkv*D], of the K positions of the context
  int dy = -1, x_again = -1, statistics_again = -1, qkv_again = -1, o_again = -1, lse_again = -1, dx = -1;  // backward
  std::int64_t qkv_weight = -1, qkv_bias = -1, q_norm = -1, k_norm = -1, output_weight = -1, output_bias = -1;
};

struct AttentionSizes {
  std::int64_t hidden = 0;    // H
  std::int64_t heads = 0;     // Hq
  std::int64_t kv_heads = 0;  // Hkv
  std::int64_t head_dim = 0;  // D
  std::int64_t window = 0;
  float scale = 1;
  float epsilon = 0;  // of the head norms
  std::int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
  std::int64_t qk_width() const { return (heads + kv_heads) * head_dim; }
  std::int64_t o_width() const { return heads * head_dim; }
};

// Pairs of a query and a key that it sees, of one head of one sequence.
double visible_pairs(std::int64_t sequence, std::int64_t window) {
  const std::int64_t w = window > 0 ? std::min(window, sequence) : sequence;
  return static_cast<double>(w) * static_cast<double>(w + 1) / 2 + static_cast<double>(sequence - w) * static_cast<double>(w);
}

template <typename E>
class AttentionOps : public UnitOps {
 public:
  AttentionOps(const Compute& compute, const AttentionSizes& sizes, Norm<E> norm, const AttentionPlaces& at,
               std::shared_ptr<const RopeAngles> rope)
      : compute_(compute),
        sizes_(sizes),
        norm_(std::move(norm)),
        at_(at),
        rope_(std::move(rope)),
        forward_(compute.engine),
        backward_(compute.engine) {
    size_forward();
    if (!is_cached()) size_backward();
  }

  const PassSize& forward_size() const { return forward_; }
  const PassSize& backward_size() const { return backward_; }

  void forward(const UnitCall& call) override {
    const E* block = weights_of<E>(call, 0);
    const E* x = value_of<E>(call, at_.x);
    E* qkv = value_of<E>(call, at_.qkv);
    E* o = value_of<E>(call, at_.o);
    std::byte* scratch = call.workspace + forward_.scratch_offset();
    E* xn = region_of<E>(call, forward_xn_);
    norm_.forward(block, x, xn, value_of<float>(call, at_.statistics));
    run(qkv_, {.a = xn, .b = block + at_.qkv_weight, .c = qkv, .bias = optional(block, at_.qkv_bias)}, scratch);
    const ops::AttentionInputs<E> in = rotated(block, qkv, region_of<E>(call, forward_qk_), call.position);
    if (is_cached()) {
      attend_to_cache(call, in, o, scratch);
    } else {
      ops::attention_forward<E>(compute_.pool, attention_shape(), in, {o, sizes_.o_width()}, value_of<float>(call, at_.lse),
                                scratch);
    }
    if (call.pass == ForwardPass::recompute) return;
    run(output_,
        {.a = o,
         .b = block + at_.output_weight,
         .c = value_of<E>(call, at_.y),
         .bias = optional(block, at_.output_bias),
         .residual = x},
        scratch);
  }

  void backward(const UnitCall& call) override {
    SPILLWAY_CHECK(!is_cached(), "attention with a cache has no backward");
    const E* block = weights_of<E>(call, 0);
    const E* x = value_of<E>(call, at_.x_again);
    const E* qkv = value_of<E>(call, at_.qkv_again);
    const E* o = value_of<E>(call, at_.o_again);
    const E* dy = value_of<E>(call, at_.dy);
    const float* statistics = value_of<float>(call, at_.statistics_again);
    float* gradient = gradient_of(call, 0);
    const ops::Store store = store_of(call);
    std::byte* scratch = call.workspace + backward_.scratch_offset();

    E* d_o = region_of<E>(call, backward_do_);
    run(output_input_, {.a = dy, .b = block + at_.output_weight, .c = d_o}, scratch);
    run(with_store(output_gradient_, store), {.a = dy, .b = o, .c = gradient + at_.output_weight}, scratch);
    if (at_.output_bias >= 0) column_sums(sizes_.hidden, dy, gradient + at_.output_bias, store, scratch);

    E* dqkv = region_of<E>(call, backward_dqkv_);
    const ops::AttentionInputs<E> in = rotated(block, qkv, region_of<E>(call, backward_qk_), 0);
    const std::int64_t O = sizes_.o_width(), Q = sizes_.qkv_width();
    ops::attention_backward<E>(compute_.pool, attention_shape(), in, {{o, O}, value_of<float>(call, at_.lse_again), {d_o, O}},
                               {{dqkv, Q}, {dqkv + O, Q}, {dqkv + sizes_.qk_width(), Q}}, scratch);
    if (rope_) {
      ops::rope_backward(compute_.pool, rope_shape(), rope_->table(), head_norm(block), qkv, dqkv, optional(gradient, at_.q_norm),
                         optional(gradient, at_.k_norm), store, scratch);
    }

    E* xn = region_of<E>(call, backward_xn_);
    E* dxn = region_of<E>(call, backward_dxn_);
    norm_.apply(block, x, statistics, xn);
    run(with_store(qkv_gradient_, store), {.a = dqkv, .b = xn, .c = gradient + at_.qkv_weight}, scratch);
    if (at_.qkv_bias >= 0) column_sums(sizes_.qkv_width(), dqkv, gradient + at_.qkv_bias, store, scratch);
    run(qkv_input_, {.a = dqkv, .b = block + at_.qkv_weight, .c = dxn}, scratch);
    norm_.backward(block, dxn, x, statistics, dy, value_of<E>(call, at_.dx), gradient, store, scratch);
  }

 private:
  template <typename T>
  static T* optional(T* block, std::int64_t place) {
    return place < 0 ? nullptr : block + place;
  }
  static ops::GemmSpec with_store(ops::GemmSpec spec, ops::Store store) {
    spec.store = store;
    return spec;
  }
  void run(const ops::GemmSpec& spec, const ops::GemmOperands& operands, std::byte* scratch) {
    compute_.engine.run(compute_.pool, spec, operands, scratch);
  }
  void column_sums(std::int64_t columns, const E* dy, float* sums, ops::Store store, std::byte* scratch) {
    ops::column_sums(compute_.pool, compute_.rows, columns, dy, sums, store, scratch);
  }

  ops::RopeShape rope_shape() const {
    return {compute_.rows, compute_.sequence, sizes_.heads, sizes_.kv_heads, sizes_.head_dim, sizes_.epsilon};
  }
  ops::HeadNorm<E> head_norm(const E* block) const { return {optional(block, at_.q_norm), optional(block, at_.k_norm)}; }

  ops::AttentionShape attention_shape() const {
    return {.sequences = compute_.sequences,
            .queries = compute_.sequence,
            .keys = compute_.sequence,
            .heads = sizes_.heads,
            .kv_heads = sizes_.kv_heads,
            .head_dim = sizes_.head_dim,
            .window = sizes_.window,
            .scale = sizes_.scale};
  }

  bool is_cached() const { return compute_.context > 0; }
  std::int64_t cache_width() const { return sizes_.kv_heads * sizes_.head_dim; }
  // Of rows at a position: they see what is cached before them, and themselves.
  ops::AttentionShape cached_shape(std::int64_t position) const {
    ops::AttentionShape shape = attention_shape();
    shape.keys = position + compute_.rows;
    shape.key_offset = position;
    return shape;
  }

  // The rows' keys and values go where they belong in the cache; then the rows attend to all that it has up to themselves.
  void attend_to_cache(const UnitCall& call, const ops::AttentionInputs<E>& in, E* o, std::byte* scratch) const {
    const std::int64_t n = compute_.rows, W = cache_width(), K = compute_.context;
    SPILLWAY_CHECK(call.position >= 0 && call.position + n <= K, "rows {} to {} of a context of {}", call.position,
                   call.position + n, K);
    E* keys = value_of<E>(call, at_.cache);
    E* values = keys + K * W;
    for (std::int64_t row = 0; row < n; ++row) {
      std::copy_n(in.k.data + row * in.k.stride, W, keys + (call.position + row) * W);
      std::copy_n(in.v.data + row * in.v.stride, W, values + (call.position + row) * W);
    }
    const ops::AttentionInputs<E> cached{in.q, {keys, W}, {values, W}};
    if (n == 1) {
      ops::attention_decode<E>(compute_.pool, cached_shape(call.position), cached, o, scratch);
    } else {
      ops::attention_forward<E>(compute_.pool, cached_shape(call.position), cached, {o, sizes_.o_width()},
                                value_of<float>(call, at_.lse), scratch);
    }
  }

  // What attention reads: queries and keys rotated into `qk`, or those of qkv itself where there are no rotary positions.
  ops::AttentionInputs<E> rotated(const E* block, const E* qkv, E* qk, std::int64_t position) const {
    const std::int64_t O = sizes_.o_width(), Q = sizes_.qkv_width(), QK = sizes_.qk_width();
    const ops::AttentionRows<const E> values{qkv + QK, Q};
    if (!rope_) return {{qkv, Q}, {qkv + O, Q}, values};
    ops::RopeTable table = rope_->table();
    table.cosine += position * (sizes_.head_dim / 2);
    table.sine += position * (sizes_.head_dim / 2);
    ops::rope_forward(compute_.pool, rope_shape(), table, head_norm(block), qkv, qk);
    return {{qk, QK}, {qk + O, QK}, values};
  }

  double attention_flops(double per_pair_and_element) const {
    return per_pair_and_element * visible_pairs(compute_.sequence, sizes_.window) *
           static_cast<double>(compute_.sequences * sizes_.o_width());
  }

  void size_forward() {
    const std::int64_t n = compute_.rows, H = sizes_.hidden;
    const Bytes element = size_of(compute_.dtype);
    // The normed rows are done with when the rotated ones are needed.
    const Bytes qk_bytes = rope_ ? n * sizes_.qk_width() * element : 0;
    forward_xn_ = forward_qk_ = forward_.reserve(std::max(n * H * element, qk_bytes));
    qkv_ = forward_.gemm(ops::linear_forward(compute_.dtype, n, H, sizes_.qkv_width(),
                                             at_.qkv_bias < 0 ? ops::Epilogue::none : ops::Epilogue::bias));
    output_ = forward_.gemm(ops::linear_forward(compute_.dtype, n, sizes_.o_width(), H,
                                                at_.output_bias < 0 ? ops::Epilogue::residual : ops::Epilogue::bias_residual));
    if (is_cached() && n == 1) {
      forward_.add_scratch(ops::attention_decode_scratch_bytes(cached_shape(compute_.context - n)));
    } else {
      const ops::AttentionShape widest = is_cached() ? cached_shape(compute_.context - n) : attention_shape();
      forward_.add_scratch(ops::attention_forward_scratch_bytes(widest, compute_.dtype, compute_.pool.threads()));
    }
    forward_.add_attention(attention_flops(4));  // two products
    forward_.add_moved(static_cast<double>(2 * n * H * element + 2 * qk_bytes));
  }

  void size_backward() {
    const std::int64_t n = compute_.rows, H = sizes_.hidden, Q = sizes_.qkv_width(), O = sizes_.o_width();
    const Bytes element = size_of(compute_.dtype);
    backward_dqkv_ = backward_.reserve(n * Q * element);
    // The gradient of o and the rotated rows are done with when the normed rows and their gradient are needed.
    const Bytes do_bytes = round_up(n * O * element, 64), xn_bytes = round_up(n * H * element, 64);
    const Bytes qk_bytes = rope_ ? n * sizes_.qk_width() * element : 0;
    const Bytes shared = backward_.reserve(std::max(do_bytes + qk_bytes, 2 * xn_bytes));
    backward_do_ = backward_xn_ = shared;
    backward_qk_ = shared + do_bytes;
    backward_dxn_ = shared + xn_bytes;

    output_input_ = backward_.gemm(ops::linear_input_gradient(compute_.dtype, n, O, H, compute_.dtype));
    qkv_input_ = backward_.gemm(ops::linear_input_gradient(compute_.dtype, n, H, Q, compute_.dtype));
    for (const ops::Store store : {ops::Store::write, ops::Store::add}) {
      const double times = store == ops::Store::write ? 1 : 0;  // one of the two runs
      output_gradient_ = backward_.gemm(ops::linear_weight_gradient(compute_.dtype, n, O, H, store), times);
      qkv_gradient_ = backward_.gemm(ops::linear_weight_gradient(compute_.dtype, n, H, Q, store), times);
    }
    if (at_.output_bias >= 0) backward_.add_scratch(ops::column_sums_scratch_bytes(n, H));
    if (at_.qkv_bias >= 0) backward_.add_scratch(ops::column_sums_scratch_bytes(n, Q));
    if (rope_) backward_.add_scratch(ops::rope_backward_scratch_bytes(rope_shape()));
    backward_.add_scratch(norm_.backward_scratch_bytes());
    backward_.add_scratch(ops::attention_backward_scratch_bytes(attention_shape(), compute_.dtype, compute_.pool.threads()));
    backward_.add_attention(attention_flops(10));  // five products
    backward_.add_moved(static_cast<double>(6 * n * H * element + 4 * qk_bytes));
  }

  Compute compute_;
  AttentionSizes sizes_;
  Norm<E> norm_;
  AttentionPlaces at_;
  std::shared_ptr<const RopeAngles> rope_;
  PassSize forward_, backward_;
  Bytes forward_xn_ = 0, forward_qk_ = 0;
  Bytes backward_dqkv_ = 0, backward_do_ = 0, backward_qk_ = 0, backward_xn_ = 0, backward_dxn_ = 0;
  ops::GemmSpec qkv_, output_, output_input_, output_gradient_, qkv_gradient_, qkv_input_;
};

}  // namespace

StreamValue add_attention(ModelBuilder& builder, StreamValue input, const std::string& output_name, const AttentionSpec& spec) {
  const Compute& compute = builder.compute();
  SPILLWAY_CHECK(spec.rope || !spec.q_norm, "{}: head norms without rotary positions", spec.name);
  const AttentionSizes sizes{spec.output_weight.rows, spec.heads, spec.kv_heads, spec.head_dim, spec.window, spec.scale,
                             spec.norm.epsilon};
  AttentionPlaces at;
  BlockLayout layout;
  const NormPlaces norm_places = add_norm(layout, spec.norm);
  at.qkv_weight = layout.add_stack(spec.qkv_weights);
  at.qkv_bias = layout.add_stack(spec.qkv_biases);
  if (spec.q_norm) at.q_norm = layout.add_stack({*spec.q_norm});
  if (spec.k_norm) at.k_norm = layout.add_stack({*spec.k_norm});
  at.output_weight = layout.add_stack({spec.output_weight});
  if (spec.output_bias) at.output_bias = layout.add_stack({*spec.output_bias});

  const std::int64_t n = compute.rows;
  const Bytes element = size_of(compute.dtype), word = sizeof(float);
  const StreamValue output = builder.add_stream_value(output_name, sizes.hidden);
  const int statistics = builder.add_value(spec.name + " statistics", norm_statistics_bytes(compute, spec.norm));
  const int qkv = builder.add_value(spec.name + " qkv", n * sizes.qkv_width() * element);
  const int o = builder.add_value(spec.name + " o", n * sizes.o_width() * element);
  const int lse = builder.add_value(spec.name + " lse", n * sizes.heads * word);

  Unit unit;
  unit.name = spec.name;
  unit.blocks = unit.gradient_blocks = {builder.add_block(spec.name, std::move(layout))};
  at.x = add_use(unit.forward, input.value, Access::read);
  at.y = add_use(unit.forward, output.value, Access::write);
  at.statistics = add_use(unit.forward, statistics, Access::write);
  at.qkv = add_use(unit.forward, qkv, Access::write);
  at.o = add_use(unit.forward, o, Access::write);
  at.lse = add_use(unit.forward, lse, Access::write);
  if (compute.context > 0) {
    const Bytes cache_bytes = 2 * compute.context * sizes.kv_heads * sizes.head_dim * element;
    at.cache = add_use(unit.forward, builder.add_lasting_value(spec.name + " cache", cache_bytes), Access::update);
  }
  at.dy = add_use(unit.backward, output.gradient, Access::read);
  at.x_again = add_use(unit.backward, input.value, Access::read);
  at.statistics_again = add_use(unit.backward, statistics, Access::read);
  at.qkv_again = add_use(unit.backward, qkv, Access::read);
  at.o_again = add_use(unit.backward, o, Access::read);
  at.lse_again = add_use(unit.backward, lse, Access::read);
  at.dx = add_use(unit.backward, input.gradient, Access::write);
  unit.saved = {statistics, qkv, o, lse};

  auto ops = make_ops(compute.dtype, [&]<typename E>() -> std::unique_ptr<UnitOps> {
    Norm<E> norm(compute, sizes.hidden, spec.norm.epsilon, norm_places);
    auto attention = std::make_unique<AttentionOps<E>>(compute, sizes, norm, at, spec.rope);
    unit.forward_work = attention->forward_size().work();
    unit.backward_work = attention->backward_size().work();
    unit.forward_workspace = attention->forward_size().workspace();
    unit.backward_workspace = attention->backward_size().workspace();
    return attention;
  });
  builder.add_unit(std::move(unit), std::move(ops));
  return output;
}

}  // namespace spillway
