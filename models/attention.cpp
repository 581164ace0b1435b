#include "models/attention.h"

#include <utility>

#include "memory/base/error.h"
#include "models/adapted_linear.h"

namespace spillway {
namespace {

// Places of the parameters in the unit's block, as elements; -1: there is none.
struct Parameters {
  NormPlaces norm, post_norm;
  std::int64_t qkv_weight = -1, qkv_bias = -1, q_norm = -1, k_norm = -1, sinks = -1, output_weight = -1, output_bias = -1;
  std::vector<AdapterPlaces> adapters;  // of qkv_weights, then of output_weight
};

Parameters lay_out(BlockLayout& layout, const AttentionSpec& spec) {
  Parameters at;
  if (spec.norm) at.norm = add_norm(layout, *spec.norm);
  at.qkv_weight = layout.add_stack(spec.qkv_weights);
  at.qkv_bias = layout.add_stack(spec.qkv_biases);
  if (spec.q_norm) at.q_norm = layout.add_stack({*spec.q_norm});
  if (spec.k_norm) at.k_norm = layout.add_stack({*spec.k_norm});
  if (spec.sinks) at.sinks = layout.add_stack({*spec.sinks});
  at.output_weight = layout.add_stack({spec.output_weight});
  if (spec.output_bias) at.output_bias = layout.add_stack({*spec.output_bias});
  if (spec.post_norm) at.post_norm = add_norm(layout, *spec.post_norm);
  return at;
}

struct Values {
  StreamValue input, output;
  Place statistics, qkv, o, lse;
  Place q_statistics, k_statistics;  // [n] float, of norms of all heads
  Place out, out_statistics;         // [n,H], what the norm after the output product reads
  Place cache;                       // keys [K, Hkv*D], then values, of the K positions of the context
};

// The unit's kernels, in terms of its values.
class Attention {
 public:
  Attention(const Compute& compute, const AttentionSpec& spec, const Parameters& at, const Values& values)
      : compute_(compute), spec_(spec), at_(at), values_(values) {}

  PassDraft forward() const {
    const Values& v = values_;
    const Place x = value_place(v.input.value), y = value_place(v.output.value);
    PassDraft pass;
    const Place xn = spec_.norm ? pass.room(n() * H() * e()) : x;
    if (spec_.norm) pass.add(norm().forward(x, xn, v.statistics));
    pass.add(qkv().forward(xn, v.qkv));
    for (std::size_t i = 0; i < spec_.qkv_weights.size(); ++i) add_forward(pass, qkv_adapter(i), xn, qkv_window(v.qkv, i));
    const Inputs in = rotated(pass, Again::no);
    if (compute_.context > 0) {
      pass.add(kernels::KeepKeys{.type = compute_.dtype,
                                 .rows = n(),
                                 .width = W(),
                                 .context = compute_.context,
                                 .k = in.k,
                                 .v = in.v,
                                 .cache = v.cache});
      const Place cached_values = v.cache.at(compute_.context * W() * e());
      pass.add(kernels::Attend{.type = compute_.dtype,
                               .shape = shape(),
                               .cached = true,
                               .q = in.q,
                               .k = {v.cache, W()},
                               .v = {cached_values, W()},
                               .o = {v.o, o_width()},
                               .lse = v.lse});
    } else {
      pass.add(kernels::Attend{.type = compute_.dtype,
                               .shape = shape(),
                               .mean_document = compute_.mean_document,
                               .q = in.q,
                               .k = in.k,
                               .v = in.v,
                               .o = {v.o, o_width()},
                               .lse = v.lse,
                               .first_key = compute_.first_key()});
    }
    if (spec_.sinks)
      pass.add(kernels::Sink{.type = compute_.dtype, .shape = shape(), .sinks = weight(at_.sinks), .lse = v.lse, .o = v.o});
    if (spec_.post_norm) {
      pass.add(output().forward(v.o, v.out));
      add_forward(pass, output_adapter(), v.o, {v.out, H()});
      pass.add(post_norm().forward(v.out, y, v.out_statistics, x));
    } else {
      pass.add(output().forward(v.o, y, x));
      add_forward(pass, output_adapter(), v.o, {y, H()});
    }
    return pass;
  }

  PassDraft backward() const {
    const Values& v = values_;
    const Place x = value_place(v.input.value), dy = value_place(v.output.gradient), dx = value_place(v.input.gradient);
    PassDraft pass;
    Place d_out = dy;
    if (spec_.post_norm) {
      d_out = pass.room(n() * H() * e());
      pass.add(post_norm().backward(compute_.dtype, dy, v.out, v.out_statistics, {}, d_out));
    }
    const Place d_o = pass.room(n() * o_width() * e());
    pass.add(output().input_gradient(d_out, d_o, compute_.dtype));
    output().add_gradients(pass, d_out, v.o);
    add_backward(pass, output_adapter(), {d_out, H()}, v.o, d_o);

    add_sinks_gradient(pass, d_o);
    const Inputs in = rotated(pass, Again::yes);
    const Place dqkv = pass.room(n() * qkv_width() * e());
    pass.add(kernels::AttendBackward{.type = compute_.dtype,
                                     .shape = shape(),
                                     .mean_document = compute_.mean_document,
                                     .q = in.q,
                                     .k = in.k,
                                     .v = in.v,
                                     .o = {v.o, o_width()},
                                     .d_o = {d_o, o_width()},
                                     .dq = {dqkv, qkv_width()},
                                     .dk = {dqkv.at(o_width() * e()), qkv_width()},
                                     .dv = {dqkv.at(qk_width() * e()), qkv_width()},
                                     .lse = v.lse,
                                     .first_key = compute_.first_key()});
    if (spec_.rope) {
      pass.add(kernels::RotateBackward{.type = compute_.dtype,
                                       .shape = rope_shape(),
                                       .cosine = spec_.rope->cosine,
                                       .sine = spec_.rope->sine,
                                       .q_cosine = spec_.rope->q_cosine,
                                       .q_sine = spec_.rope->q_sine,
                                       .q_weight = head_weight(at_.q_norm),
                                       .k_weight = head_weight(at_.k_norm),
                                       .qkv = norms_each_head() ? v.qkv : Place{},
                                       .dqkv = dqkv,
                                       .dq_weight = head_gradient(at_.q_norm),
                                       .dk_weight = head_gradient(at_.k_norm),
                                       .first_key = compute_.first_key()});
    }
    if (spec_.norms_all_heads) add_heads_backward(pass, dqkv);

    // Without a norm the product itself brings the residual's gradient.
    const Place xn = spec_.norm ? pass.room(n() * H() * e()) : x, dxn = spec_.norm ? pass.room(n() * H() * e()) : dx;
    if (spec_.norm) pass.add(norm().again(x, v.statistics, xn));
    qkv().add_gradients(pass, dqkv, xn);
    pass.add(qkv().input_gradient(dqkv, dxn, compute_.dtype, spec_.norm ? Place{} : dy));
    for (std::size_t i = 0; i < spec_.qkv_weights.size(); ++i) add_backward(pass, qkv_adapter(i), qkv_window(dqkv, i), xn, dxn);
    if (spec_.norm) pass.add(norm().backward(compute_.dtype, dxn, x, v.statistics, dy, dx));
    return pass;
  }

 private:
  void add_sinks_gradient(PassDraft& pass, const Place& d_o) const {
    const Place dsinks = gradient_place(compute_, 0, at_.sinks);
    if (!dsinks) return;
    pass.add(kernels::SinkBackward{.type = compute_.dtype,
                                   .shape = shape(),
                                   .sinks = weight(at_.sinks),
                                   .lse = values_.lse,
                                   .o = values_.o,
                                   .d_o = d_o,
                                   .dsinks = dsinks});
  }

  // The inputs of attention: queries and keys rotated into a room, or those of qkv itself where there are no rotary positions.
  struct Inputs {
    kernels::Rows q, k, v;
  };
  enum class Again { no, yes };  // in a backward: positions are those of a whole sequence
  Inputs rotated(PassDraft& pass, Again again) const {
    const Place qkv = values_.qkv;
    const ControlWord word = again == Again::yes ? ControlWord::none : ControlWord::position;
    const kernels::Rows values{qkv.at(qk_width() * e()), qkv_width()};
    if (!spec_.rope) return {{qkv, qkv_width()}, {qkv.at(o_width() * e()), qkv_width()}, values};
    const Bytes row = spec_.head_dim / 2 * static_cast<Bytes>(sizeof(float));
    const auto from = [&](Place table) { return word == ControlWord::none || !table ? table : table.moving_with(word, row); };
    const Place qk = pass.room(n() * qk_width() * e());
    pass.add(kernels::Rotate{.type = compute_.dtype,
                             .shape = rope_shape(),
                             .cosine = from(spec_.rope->cosine),
                             .sine = from(spec_.rope->sine),
                             .q_cosine = from(spec_.rope->q_cosine),
                             .q_sine = from(spec_.rope->q_sine),
                             .q_weight = head_weight(at_.q_norm),
                             .k_weight = head_weight(at_.k_norm),
                             .qkv = spec_.norms_all_heads ? normed(pass, again) : qkv,
                             .qk = qk,
                             .first_key = compute_.first_key()});
    return {{qk, qk_width()}, {qk.at(o_width() * e()), qk_width()}, values};
  }

  // The part of qkv that a norm of all heads is over.
  struct HeadsNorm {
    Bytes offset;
    std::int64_t width, weight;
    Place statistics;
  };
  HeadsNorm q_heads() const { return {0, o_width(), at_.q_norm, values_.q_statistics}; }
  HeadsNorm k_heads() const { return {o_width() * e(), W(), at_.k_norm, values_.k_statistics}; }
  // A room like qkv with the normed queries and keys; its values stay empty.
  Place normed(PassDraft& pass, Again again) const {
    const Place room = pass.room(n() * qkv_width() * e());
    for (const HeadsNorm& of : {q_heads(), k_heads()}) {
      const Place x = values_.qkv.at(of.offset), y = room.at(of.offset);
      if (again == Again::yes) {
        pass.add(kernels::NormAgain{.type = compute_.dtype,
                                    .rows = n(),
                                    .hidden = of.width,
                                    .stride = qkv_width(),
                                    .offset = spec_.head_norm_offset,
                                    .x = x,
                                    .weight = weight(of.weight),
                                    .statistics = of.statistics,
                                    .y = y});
      } else {
        pass.add(kernels::Norm{.type = compute_.dtype,
                               .rows = n(),
                               .hidden = of.width,
                               .stride = qkv_width(),
                               .epsilon = spec_.head_norm_epsilon,
                               .offset = spec_.head_norm_offset,
                               .x = x,
                               .weight = weight(of.weight),
                               .y = y,
                               .statistics = of.statistics});
      }
    }
    return room;
  }
  // In place: gradients of the normed queries and keys become those of the raw ones.
  void add_heads_backward(PassDraft& pass, Place dqkv) const {
    for (const HeadsNorm& of : {q_heads(), k_heads()}) {
      const Place d = dqkv.at(of.offset);
      pass.add(kernels::NormBackward{.type = compute_.dtype,
                                     .gradient_type = compute_.dtype,
                                     .rows = n(),
                                     .hidden = of.width,
                                     .stride = qkv_width(),
                                     .offset = spec_.head_norm_offset,
                                     .dy = d,
                                     .x = values_.qkv.at(of.offset),
                                     .weight = weight(of.weight),
                                     .statistics = of.statistics,
                                     .dx = d,
                                     .dweight = gradient_place(compute_, 0, of.weight)});
    }
  }
  bool norms_each_head() const { return spec_.q_norm && !spec_.norms_all_heads; }
  Place head_weight(std::int64_t element) const { return norms_each_head() ? weight(element) : Place{}; }
  Place head_gradient(std::int64_t element) const { return norms_each_head() ? gradient_place(compute_, 0, element) : Place{}; }

  AdaptedLinear qkv_adapter(std::size_t i) const {
    const FileTensor& weight = spec_.qkv_weights[i];
    return {compute_, weight.columns, weight.rows, at_.adapters[i], 1};
  }
  AdaptedLinear output_adapter() const { return {compute_, o_width(), H(), at_.adapters.back(), 1, spec_.residual_factor}; }
  // The columns of the i-th of qkv_weights.
  Window qkv_window(Place qkv, std::size_t i) const {
    std::int64_t column = 0;
    for (std::size_t before = 0; before < i; ++before) column += spec_.qkv_weights[before].rows;
    return {qkv.at(column * e()), qkv_width()};
  }
  void add_forward(PassDraft& pass, const AdaptedLinear& adapter, Place x, Window y) const {
    if (!adapter.at) return;
    pass.add(adapter.into(adapter.dropped(pass, x), adapter.at.between));
    pass.add(adapter.out_of(adapter.at.between, y, compute_.dtype));
  }
  // Behind the product that writes dx.
  void add_backward(PassDraft& pass, const AdaptedLinear& adapter, Window dy, Place x, Place dx) const {
    if (!adapter.at) return;
    const Place dbetween = pass.room(adapter.elements_between() * e());
    pass.add(adapter.back_into(dy, dbetween));
    pass.add(adapter.b_gradient(dy, adapter.at.between));
    pass.add(adapter.a_gradient(dbetween, adapter.dropped(pass, x)));
    adapter.add_back_out_of(pass, dbetween, dx, compute_.dtype);
  }

  Place weight(std::int64_t element) const { return weight_place(compute_, 0, element); }
  Linear qkv() const { return {compute_, n(), H(), qkv_width(), at_.qkv_weight, at_.qkv_bias}; }
  Linear output() const {
    return {compute_, n(), o_width(), H(), at_.output_weight, at_.output_bias, 0, 0, spec_.residual_factor};
  }
  NormKernels norm() const { return {compute_, *spec_.norm, at_.norm}; }
  NormKernels post_norm() const { return {compute_, *spec_.post_norm, at_.post_norm}; }

  ops::RopeShape rope_shape() const {
    return {n(), compute_.sequence, spec_.heads, spec_.kv_heads, spec_.head_dim, spec_.head_norm_epsilon, spec_.head_norm_offset};
  }
  ops::AttentionShape shape() const {
    return {.sequences = compute_.sequences,
            .queries = compute_.sequence,
            .keys = compute_.context > 0 ? compute_.context : compute_.sequence,
            .heads = spec_.heads,
            .kv_heads = spec_.kv_heads,
            .head_dim = spec_.head_dim,
            .window = spec_.window,
            .scale = spec_.scale,
            .softcap = spec_.softcap};
  }

  std::int64_t n() const { return compute_.rows; }
  std::int64_t H() const { return spec_.output_weight.rows; }
  std::int64_t W() const { return spec_.kv_heads * spec_.head_dim; }
  std::int64_t o_width() const { return spec_.heads * spec_.head_dim; }
  std::int64_t qk_width() const { return o_width() + W(); }
  std::int64_t qkv_width() const { return o_width() + 2 * W(); }
  Bytes e() const { return compute_.element(); }

  const Compute& compute_;
  const AttentionSpec& spec_;
  const Parameters& at_;
  const Values& values_;
};

}  // namespace

StreamValue add_attention(ModelBuilder& builder, StreamValue input, const std::string& output_name, const AttentionSpec& spec) {
  const Compute& compute = builder.compute();
  SPILLWAY_CHECK(spec.rope || !spec.q_norm, "{}: head norms without rotary positions", spec.name);
  const std::int64_t n = compute.rows, o_width = spec.heads * spec.head_dim, kv_width = spec.kv_heads * spec.head_dim;
  const Bytes element = compute.element(), word = sizeof(float);
  UnitDraft draft;
  const auto add_saved = [&](const std::string& what, Bytes bytes) {
    draft.unit.saved.push_back(builder.add_value(spec.name + what, bytes));
    return value_place(draft.unit.saved.back());
  };
  Values values;
  values.input = input;
  values.output = builder.add_stream_value(output_name, spec.output_weight.rows);
  if (spec.norm) values.statistics = add_saved(" statistics", norm_statistics_bytes(compute, *spec.norm));
  values.qkv = add_saved(" qkv", n * (o_width + 2 * kv_width) * element);
  values.o = add_saved(" o", n * o_width * element);
  values.lse = add_saved(" lse", n * spec.heads * word);
  if (spec.norms_all_heads) {
    values.q_statistics = add_saved(" q statistics", n * word);
    values.k_statistics = add_saved(" k statistics", n * word);
  }
  if (spec.post_norm) {
    values.out = add_saved(" out", n * spec.output_weight.rows * element);
    values.out_statistics = add_saved(" out statistics", norm_statistics_bytes(compute, *spec.post_norm));
  }
  if (compute.context > 0)
    values.cache = value_place(builder.add_lasting_value(spec.name + " cache", 2 * compute.context * kv_width * element));

  BlockLayout layout, adapter_layout;
  Parameters at = lay_out(layout, spec);
  std::vector<FileTensor> adapted = spec.qkv_weights;
  adapted.push_back(spec.output_weight);
  const std::vector<Place> between = add_between(builder, spec.name, adapted, compute.dtype);
  for (std::size_t i = 0; i < adapted.size(); ++i)
    at.adapters.push_back(between[i] ? add_adapter(adapter_layout, compute, adapted[i], between[i]) : AdapterPlaces{});
  draft.unit.name = spec.name;
  draft.unit.blocks = draft.unit.gradient_blocks = {builder.add_block(spec.name, std::move(layout))};
  builder.add_adapter_block(draft.unit, std::move(adapter_layout));
  const Attention attention(compute, spec, at, values);
  draft.forward = attention.forward();
  if (compute.context == 0) draft.backward = attention.backward();
  builder.add_unit(std::move(draft));
  return values.output;
}

}  // namespace spillway
