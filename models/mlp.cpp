#include "models/mlp.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "memory/base/error.h"
#include "models/adapted_linear.h"

namespace spillway {
namespace {

// The part of a tile among those of its MLP: the first brings norm, bias and residual, the last rounds.
struct Part {
  bool is_first = true, is_last = true;
  bool is_only() const { return is_first && is_last; }
};

// Places of the parameters in their blocks, as elements; -1: the tile has none.
struct Parameters {
  NormPlaces norm, post_norm;
  std::int64_t up_weight = -1, up_bias = -1, down_weight = -1, down_bias = -1;
  std::vector<AdapterPlaces> up_adapters;  // [up_weights]
  AdapterPlaces down_adapter;
  int adapter_block = -1;  // among the unit's
};

// Values that all tiles of one MLP share.
struct Values {
  StreamValue input, output;
  Place statistics;
  Place sum, dsum;                   // [n,H] float, for MLPs in tiles
  Place out, out_statistics, d_out;  // [n,H], if there is a norm after the down product; d_out for MLPs in tiles
  // Values between the factors of adapters [n,r], and their gradients, where there are adapters. MLPs in tiles have sums of the
  // tiles' parts in float: of up's gradients, and of down's values.
  std::vector<Place> up_between, up_dsum;  // [up_weights]
  Place down_between, down_sum, down_dbetween;
  int norm_block = -1;  // for MLPs in tiles; else the norms lie in the only tile's block
  NormPlaces norm;
};

// A tile's kernels, in terms of its values.
class Tile {
 public:
  Tile(const Compute& compute, const MlpSpec& spec, Part part, std::int64_t columns, const Parameters& at, const Values& values,
       Place up)
      : compute_(compute), spec_(spec), part_(part), columns_(columns), at_(at), values_(values), up_(up) {}

  PassDraft forward() const {
    const Values& v = values_;
    const Place x = value_place(v.input.value), y = value_place(v.output.value);
    PassDraft pass;
    const Place xn = normed(pass, part_.is_first ? Again::no : Again::yes), h = pass.room(n() * I() * e());
    pass.add(up().forward(xn, up_));
    add_up_adapters(pass, xn);
    pass.add(kernels::Activate{.type = compute_.dtype,
                               .activation = spec_.activation,
                               .gated = spec_.is_gated(),
                               .rows = n(),
                               .columns = I(),
                               .up = up_,
                               .h = h});
    // The first tile brings the bias and, if no norm comes between, the residual; the last one rounds the sum.
    const Place out = spec_.post_norm ? v.out : y;
    const bool adds_residual = part_.is_first && !spec_.post_norm;
    kernels::Product product = down().forward(h, part_.is_only() ? out : v.sum, adds_residual ? x : Place{});
    if (!part_.is_first) product.sum = Sum::add;
    if (!part_.is_only()) product.spec.output = DType::float32;
    pass.add(product);
    add_down_adapter(pass, h, part_.is_only() ? out : v.sum);
    if (!part_.is_only() && part_.is_last)
      pass.add(kernels::Round{.type = compute_.dtype, .elements = n() * H(), .x = v.sum, .y = out});
    if (part_.is_last && spec_.post_norm) pass.add(post_norm().forward(v.out, y, v.out_statistics, x));
    return pass;
  }

  PassDraft backward() const {
    const Values& v = values_;
    const Place x = value_place(v.input.value), dx = value_place(v.input.gradient), dy = value_place(v.output.gradient);
    PassDraft pass;
    Place d_out = dy;
    if (spec_.post_norm) {
      d_out = part_.is_only() ? pass.room(n() * H() * e()) : v.d_out;
      if (part_.is_last) pass.add(post_norm().backward(compute_.dtype, dy, v.out, v.out_statistics, {}, d_out));
    }
    const Place dh = pass.room(n() * I() * e()), h = pass.room(n() * I() * e()), dup = pass.room(n() * U() * e());
    pass.add(down().input_gradient(d_out, dh, compute_.dtype));
    const Place down_dbetween = add_down_adapter_backward(pass, d_out, dh);
    pass.add(kernels::ActivateBackward{.type = compute_.dtype,
                                       .activation = spec_.activation,
                                       .gated = spec_.is_gated(),
                                       .rows = n(),
                                       .columns = I(),
                                       .dh = dh,
                                       .up = up_,
                                       .dup = dup,
                                       .h = h});
    down().add_gradients(pass, d_out, h);
    if (at_.down_adapter) pass.add(down_adapter().a_gradient(down_dbetween, down_adapter().dropped(pass, h)));

    const Place xn = normed(pass, Again::yes);
    up().add_gradients(pass, dup, xn);

    // The tiles' parts add up in fp32, last to first. Without a norm, the last one brings the residual's gradient.
    const DType type = part_.is_only() ? compute_.dtype : DType::float32;
    const Place dxn = !part_.is_only() ? v.dsum : spec_.norm ? pass.room(n() * H() * e()) : dx;
    kernels::Product product = up().input_gradient(dup, dxn, type, part_.is_last && !spec_.norm ? dy : Place{});
    if (!part_.is_last) product.sum = Sum::add;
    pass.add(product);
    for (std::size_t i = 0; i < at_.up_adapters.size(); ++i) add_up_adapter_backward(pass, i, dup, xn, dxn, type);
    if (part_.is_first && spec_.norm) {
      pass.add(norm().backward(type, dxn, x, v.statistics, dy, dx));
    } else if (part_.is_first && !part_.is_only()) {
      pass.add(kernels::Round{.type = compute_.dtype, .elements = n() * H(), .x = dxn, .y = dx});
    }
    return pass;
  }

 private:
  // The input of the up product: the norm of x in a room, or x itself.
  enum class Again { no, yes };  // from the statistics
  Place normed(PassDraft& pass, Again again) const {
    const Place x = value_place(values_.input.value);
    if (!spec_.norm) return x;
    const Place xn = pass.room(n() * H() * e());
    if (again == Again::yes) {
      pass.add(norm().again(x, values_.statistics, xn));
    } else {
      pass.add(norm().forward(x, xn, values_.statistics));
    }
    return xn;
  }
  void add_up_adapters(PassDraft& pass, Place xn) const {
    for (std::size_t i = 0; i < at_.up_adapters.size(); ++i) {
      const AdaptedLinear adapter = up_adapter(i);
      if (!adapter.at) continue;
      if (part_.is_first) pass.add(adapter.into(adapter.dropped(pass, xn), adapter.at.between));
      pass.add(adapter.out_of(adapter.at.between, up_window(up_, i), compute_.dtype));
    }
  }
  // Each tile has a part of the sum between the factors; the last one takes it on, to `out`.
  void add_down_adapter(PassDraft& pass, Place h, Place out) const {
    const AdaptedLinear adapter = down_adapter();
    if (!adapter.at) return;
    kernels::Product into = adapter.into(adapter.dropped(pass, h), part_.is_only() ? adapter.at.between : values_.down_sum);
    if (!part_.is_first) into.sum = Sum::add;
    if (!part_.is_only()) into.spec.output = DType::float32;
    pass.add(into);
    if (!part_.is_last) return;
    if (!part_.is_only())
      pass.add(kernels::Round{
          .type = compute_.dtype, .elements = adapter.elements_between(), .x = values_.down_sum, .y = adapter.at.between});
    pass.add(adapter.out_of(adapter.at.between, {out, H()}, part_.is_only() ? compute_.dtype : DType::float32));
  }
  // Returns the gradient of what lies between.
  Place add_down_adapter_backward(PassDraft& pass, Place d_out, Place dh) const {
    const AdaptedLinear adapter = down_adapter();
    if (!adapter.at) return {};
    const Place dbetween = part_.is_only() ? pass.room(adapter.elements_between() * e()) : values_.down_dbetween;
    if (part_.is_last) {
      pass.add(adapter.back_into({d_out, H()}, dbetween));
      pass.add(adapter.b_gradient({d_out, H()}, adapter.at.between));
    }
    adapter.add_back_out_of(pass, dbetween, dh, compute_.dtype);
    return dbetween;
  }
  // The tiles' parts of the gradient between the factors add up, last to first; the first one takes it on, to dxn.
  void add_up_adapter_backward(PassDraft& pass, std::size_t i, Place dup, Place xn, Place dxn, DType type) const {
    const AdaptedLinear adapter = up_adapter(i);
    if (!adapter.at) return;
    Place dbetween = pass.room(adapter.elements_between() * e());
    kernels::Product into = adapter.back_into(up_window(dup, i), part_.is_only() ? dbetween : values_.up_dsum[i]);
    if (!part_.is_last) into.sum = Sum::add;
    if (!part_.is_only()) into.spec.output = DType::float32;
    pass.add(into);
    pass.add(adapter.b_gradient(up_window(dup, i), adapter.at.between));
    if (!part_.is_first) return;
    if (!part_.is_only())
      pass.add(
          kernels::Round{.type = compute_.dtype, .elements = adapter.elements_between(), .x = values_.up_dsum[i], .y = dbetween});
    pass.add(adapter.a_gradient(dbetween, adapter.dropped(pass, xn)));
    adapter.add_back_out_of(pass, dbetween, dxn, type);
  }

  AdaptedLinear up_adapter(std::size_t i) const {
    return {compute_, H(), spec_.is_fused() ? U() : I(), at_.up_adapters[i], at_.adapter_block};
  }
  AdaptedLinear down_adapter() const { return {compute_, I(), H(), at_.down_adapter, at_.adapter_block, spec_.residual_factor}; }
  // The columns of the i-th of up_weights.
  Window up_window(Place up, std::size_t i) const { return {up.at(static_cast<std::int64_t>(i) * I() * e()), U()}; }

  Linear up() const { return {compute_, n(), H(), U(), at_.up_weight, at_.up_bias}; }
  Linear down() const { return {compute_, n(), I(), H(), at_.down_weight, at_.down_bias, 0, 0, spec_.residual_factor}; }
  NormKernels norm() const { return {compute_, *spec_.norm, at_.norm}; }
  NormKernels post_norm() const { return {compute_, *spec_.post_norm, at_.post_norm}; }
  std::int64_t n() const { return compute_.rows; }
  std::int64_t H() const { return spec_.down_weight.rows; }
  std::int64_t I() const { return columns_; }
  std::int64_t U() const { return spec_.is_gated() ? 2 * columns_ : columns_; }
  Bytes e() const { return compute_.element(); }

  const Compute& compute_;
  const MlpSpec& spec_;
  Part part_;
  std::int64_t columns_;
  const Parameters& at_;
  const Values& values_;
  Place up_;
};

// Adds a tile's rows of a tensor before the activation: of gate, then of up, where they are one tensor.
void add_up_rows(BlockLayout& layout, const MlpSpec& spec, const FileTensor& tensor, std::int64_t begin, std::int64_t rows) {
  layout.add_rows(tensor, begin, rows);
  if (spec.is_fused()) layout.add_rows(tensor, spec.inner() + begin, rows);
}

// Lays out a tile's part of the MLP's adapters: rows of B of up, columns of A of down. A of up belongs to the first tile, and B
// of down to the last.
void add_adapters(BlockLayout& layout, const Compute& compute, const MlpSpec& spec, const Values& values, Part part,
                  std::int64_t column_begin, std::int64_t columns, Parameters& at) {
  const std::int64_t rank = compute.adapter ? compute.adapter->rank : 0;
  for (std::size_t i = 0; i < spec.up_weights.size(); ++i) {
    AdapterPlaces& of = at.up_adapters.emplace_back(AdapterPlaces{.between = values.up_between[i]});
    if (!of) continue;
    of.site = dropout_site(spec.up_weights[i], 0);
    if (part.is_first) of.a = layout.add_stack({adapter_a(spec.up_weights[i], rank)});
    of.b = layout.align();
    add_up_rows(layout, spec, adapter_b(spec.up_weights[i], rank), column_begin, columns);
  }
  at.down_adapter.between = values.down_between;
  if (!at.down_adapter) return;
  at.down_adapter.site = dropout_site(spec.down_weight, column_begin);
  at.down_adapter.a = layout.align();
  layout.add_columns(adapter_a(spec.down_weight, rank), column_begin, columns);
  if (part.is_last) at.down_adapter.b = layout.add_stack({adapter_b(spec.down_weight, rank)});
}

void add_tile(ModelBuilder& builder, const MlpSpec& spec, const Values& values, Part part, std::int64_t column_begin,
              std::int64_t columns, const std::string& name) {
  const Compute& compute = builder.compute();
  Parameters at;
  BlockLayout layout;
  if (spec.norm && part.is_only()) at.norm = add_norm(layout, *spec.norm);
  at.up_weight = layout.align();
  for (const FileTensor& weight : spec.up_weights) add_up_rows(layout, spec, weight, column_begin, columns);
  if (!spec.up_biases.empty()) {
    at.up_bias = layout.align();
    for (const FileTensor& bias : spec.up_biases) add_up_rows(layout, spec, bias, column_begin, columns);
  }
  at.down_weight = layout.align();
  layout.add_columns(spec.down_weight, column_begin, columns);
  if (spec.down_bias && part.is_first) at.down_bias = layout.add_stack({*spec.down_bias});
  if (spec.post_norm && part.is_only()) at.post_norm = add_norm(layout, *spec.post_norm);

  UnitDraft draft;
  Unit& unit = draft.unit;
  unit.name = name;
  unit.blocks = unit.gradient_blocks = {builder.add_block(name, std::move(layout))};
  if (spec.norm && !part.is_only()) {
    at.norm = values.norm;
    at.norm.block = 1;
    unit.blocks.push_back(values.norm_block);
    if (part.is_first) {
      at.norm.gradient = 1;
      unit.gradient_blocks.push_back(values.norm_block);
    }
  }
  if (!part.is_only() && part.is_last && spec.post_norm) {
    BlockLayout own;
    at.post_norm = add_norm(own, *spec.post_norm);
    at.post_norm.block = static_cast<int>(unit.blocks.size());
    at.post_norm.gradient = static_cast<int>(unit.gradient_blocks.size());
    unit.blocks.push_back(builder.add_block(spec.name + " post norm", std::move(own)));
    unit.gradient_blocks.push_back(unit.blocks.back());
  }

  BlockLayout adapter_layout;
  add_adapters(adapter_layout, compute, spec, values, part, column_begin, columns, at);
  at.adapter_block = static_cast<int>(unit.blocks.size());
  builder.add_adapter_block(unit, std::move(adapter_layout));

  const std::int64_t up_rows = spec.is_gated() ? 2 * columns : columns;
  const int up = builder.add_value(name + " up", compute.rows * up_rows * compute.element());
  unit.saved = {up};
  if (part.is_only()) {
    if (spec.norm) unit.saved.push_back(values.statistics.index);
    if (spec.post_norm) unit.saved.insert(unit.saved.end(), {values.out.index, values.out_statistics.index});
  }
  const Tile tile(compute, spec, part, columns, at, values, value_place(up));
  draft.forward = tile.forward();
  draft.backward = tile.backward();
  builder.add_unit(std::move(draft));
}

}  // namespace

std::int64_t mlp_matrix_elements(const ModelConfig& config) {
  return (config.family->gated_mlp ? 3 : 2) * config.hidden * config.mlp_width;
}

StreamValue add_mlp(ModelBuilder& builder, StreamValue input, const std::string& output_name, const MlpSpec& spec) {
  const Compute& compute = builder.compute();
  const std::int64_t H = spec.down_weight.rows, I = spec.inner();
  SPILLWAY_CHECK(spec.up_weights.size() == 1 || spec.up_weights.size() == 2, "{}: {} matrices before the activation", spec.name,
                 spec.up_weights.size());
  const std::int64_t cut = std::min(builder.cuts().mlp_columns, I);
  const std::int64_t tiles = (I + cut - 1) / cut;
  const Bytes stream_bytes = compute.rows * H * compute.element();
  const auto add_value = [&](const std::string& what, Bytes bytes) {
    return value_place(builder.add_value(spec.name + what, bytes));
  };

  Values values;
  values.input = input;
  values.output = builder.add_stream_value(output_name, H);
  if (spec.norm) values.statistics = add_value(" statistics", norm_statistics_bytes(compute, *spec.norm));
  if (spec.post_norm) {
    values.out = add_value(" out", stream_bytes);
    values.out_statistics = add_value(" out statistics", norm_statistics_bytes(compute, *spec.post_norm));
  }
  values.up_between = add_between(builder, spec.name + " up", spec.up_weights, compute.dtype);
  values.down_between = add_between(builder, spec.name + " down", {spec.down_weight}, compute.dtype).front();
  if (tiles == 1) {
    add_tile(builder, spec, values, {}, 0, I, spec.name);
    return values.output;
  }
  const Bytes sum_bytes = compute.rows * H * static_cast<Bytes>(sizeof(float));
  values.sum = add_value(" sum", sum_bytes);
  values.dsum = value_place(builder.add_value("d " + spec.name + " sum", sum_bytes));
  if (spec.post_norm) values.d_out = value_place(builder.add_value("d " + spec.name + " out", stream_bytes));
  if (values.down_between) {
    const std::int64_t elements = compute.rows * compute.adapter->rank;
    values.down_sum = add_value(" between sum", elements * static_cast<Bytes>(sizeof(float)));
    values.down_dbetween = value_place(builder.add_value("d " + spec.name + " between", elements * compute.element()));
  }
  values.up_dsum = add_between(builder, "d " + spec.name + " sums", spec.up_weights, DType::float32);
  if (spec.norm) {
    BlockLayout layout;
    values.norm = add_norm(layout, *spec.norm);
    values.norm_block = builder.add_block(spec.name + " norm", std::move(layout));
  }
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    add_tile(builder, spec, values, {.is_first = tile == 0, .is_last = tile + 1 == tiles}, tile * cut,
             std::min(cut, I - tile * cut), fmt::format("{} tile {}", spec.name, tile));
  }
  return values.output;
}

}  // namespace spillway
