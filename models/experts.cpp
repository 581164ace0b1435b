#include "models/experts.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "memory/base/error.h"

namespace spillway {
namespace {

constexpr Bytes kFloat = sizeof(float);

// Values that all units of one layer's mixture share.
struct Values {
  StreamValue input, output;
  Place statistics, scores, log_sums, routing;
  Place totals;               // of all layers
  Place sum, dsum, dweights;  // [n,H] float, [n,H] float, [n,k] float; for a mixture in several units
};

ops::RouterShape router_shape_of(const ExpertsSpec& spec, std::int64_t rows) {
  return {.rows = rows,
          .experts = std::ssize(spec.experts),
          .per_row = spec.per_row,
          .normalised = spec.normalised,
          .factor = spec.factor,
          .shared = spec.shared.has_value()};
}

// Groups [begin, end) of a layer's `of`, which a unit has.
struct Part {
  std::int64_t begin = 0, end = 0, of = 0;
  bool is_first() const { return begin == 0; }
  bool is_last() const { return end == of; }
  bool is_only() const { return is_first() && is_last(); }
};

// Places in the router's block, as elements; -1: there is none.
struct RouterPlaces {
  NormPlaces norm;
  std::int64_t weight = -1, bias = -1;
};

// The kernels of one unit. Its block 0 has norm and router, and block 1 + i its i-th group.
class Mixture {
 public:
  Mixture(const Compute& compute, const ExpertsSpec& spec, std::int64_t group, Part part, const RouterPlaces& at,
          const Values& values)
      : compute_(compute), spec_(spec), group_(group), part_(part), at_(at), values_(values) {}

  PassDraft forward() const {
    const Values& v = values_;
    const Place x = value_place(v.input.value);
    PassDraft pass;
    const Place xn = pass.room(n() * H() * e());
    if (part_.is_first()) {
      pass.add(norm().forward(x, xn, v.statistics));
      add_router(pass, xn);
    } else {
      pass.add(norm().again(x, v.statistics, xn));
    }
    const Place sum = part_.is_only() ? pass.room(n() * H() * kFloat) : v.sum;
    for (std::int64_t g = part_.begin; g < part_.end; ++g) {
      kernels::Experts call{.type = compute_.dtype,
                            .activation = spec_.activation,
                            .shape = shape(g),
                            .x = xn,
                            .routing = v.routing,
                            .weights = weight_place(compute_, block_of(g), 0),
                            .residual = g == 0 ? x : Place{},
                            .sum = sum};
      const Bytes rows = call.shape.most_rows();
      call.rows = pass.room(rows * H() * e());
      call.up = pass.room(rows * 2 * call.shape.width * e());
      call.h = pass.room(rows * call.shape.width * e());
      call.out = pass.room(rows * H() * kFloat);
      pass.add(call);
    }
    if (part_.is_last())
      pass.add(kernels::Round{.type = compute_.dtype, .elements = n() * H(), .x = sum, .y = value_place(v.output.value)});
    return pass;
  }

  PassDraft backward() const {
    const Values& v = values_;
    const Place x = value_place(v.input.value), dy = value_place(v.output.gradient);
    PassDraft pass;
    const Place xn = pass.room(n() * H() * e());
    pass.add(norm().again(x, v.statistics, xn));
    const Place dxn = part_.is_only() ? pass.room(n() * H() * kFloat) : v.dsum;
    const Place dweights = part_.is_only() ? pass.room(n() * router_shape().places() * kFloat) : v.dweights;
    for (std::int64_t g = part_.end; g-- > part_.begin;) {
      kernels::ExpertsBackward call{.type = compute_.dtype,
                                    .activation = spec_.activation,
                                    .shape = shape(g),
                                    .begins = g + 1 == part_.of,
                                    .dy = dy,
                                    .x = xn,
                                    .routing = v.routing,
                                    .weights = weight_place(compute_, block_of(g), 0),
                                    .gradients = gradient_place(compute_, block_of(g) - (part_.is_first() ? 0 : 1), 0),
                                    .dx = dxn,
                                    .dweights = dweights};
      const Bytes rows = call.shape.most_rows();
      for (Place* piece : {&call.rows, &call.drows}) *piece = pass.room(rows * H() * e());
      for (Place* piece : {&call.up, &call.dup}) *piece = pass.room(rows * 2 * call.shape.width * e());
      for (Place* piece : {&call.h, &call.dh}) *piece = pass.room(rows * call.shape.width * e());
      call.out = pass.room(rows * H() * kFloat);
      pass.add(call);
    }
    if (part_.is_first()) add_router_backward(pass, x, xn, dxn, dweights, dy);
    return pass;
  }

 private:
  void add_router(PassDraft& pass, Place xn) const {
    const Values& v = values_;
    kernels::Product product = router().forward(xn, v.scores);
    product.spec.output = DType::float32;
    pass.add(product);
    pass.add(kernels::Route{.shape = router_shape(),
                            .layer = spec_.layer,
                            .begins = spec_.is_first,
                            .scores = v.scores,
                            .log_sums = v.log_sums,
                            .routing = v.routing,
                            .fault = place_of(ControlWord::router_fault)});
    kernels::AddRouting adds{.shape = router_shape(),
                             .layers = spec_.layers,
                             .begins = spec_.is_first,
                             .ends = spec_.is_last,
                             .scores = v.scores,
                             .log_sums = v.log_sums,
                             .routing = v.routing,
                             .totals = v.totals,
                             .load = place_of(ControlWord::expert_load)};
    if (spec_.is_last)
      adds.balance_loss = place_of(ControlWord::balance_loss), adds.z_loss = place_of(ControlWord::router_z_loss);
    pass.add(adds);
  }

  // The router's part of the gradient comes behind those of the experts.
  void add_router_backward(PassDraft& pass, Place x, Place xn, Place dxn, Place dweights, Place dy) const {
    const Values& v = values_;
    const Place dlogits = pass.room(n() * router_shape().columns() * e());
    pass.add(kernels::RouteBackward{.type = compute_.dtype,
                                    .shape = router_shape(),
                                    .layers = spec_.layers,
                                    .balance = static_cast<float>(spec_.losses.balance),
                                    .z = static_cast<float>(spec_.losses.z),
                                    .dweights = dweights,
                                    .scores = v.scores,
                                    .log_sums = v.log_sums,
                                    .routing = v.routing,
                                    .totals = spec_.losses.balance > 0 ? v.totals : Place{},
                                    .batch_share = spec_.losses.any() ? place_of(ControlWord::batch_share) : Place{},
                                    .dlogits = dlogits});
    router().add_gradients(pass, dlogits, xn);
    kernels::Product product = router().input_gradient(dlogits, dxn, DType::float32);
    product.sum = Sum::add;
    pass.add(product);
    pass.add(norm().backward(DType::float32, dxn, x, v.statistics, dy, value_place(v.input.gradient)));
  }

  int block_of(std::int64_t g) const { return static_cast<int>(1 + g - part_.begin); }
  ops::RouterShape router_shape() const { return router_shape_of(spec_, n()); }
  ops::ExpertsShape shape(std::int64_t g) const {
    const std::int64_t experts = std::ssize(spec_.experts), first = g * group_;
    ops::ExpertsShape shape{.router = router_shape(), .hidden = H(), .first = std::min(first, experts)};
    const bool is_shared = first >= experts;
    shape.width = (is_shared ? *spec_.shared : spec_.experts.front()).width;
    shape.count = is_shared ? 1 : std::min(group_, experts - first);
    shape.biased = !is_shared && spec_.experts.front().up_bias.has_value();
    return shape;
  }
  Linear router() const { return {compute_, n(), H(), router_shape().columns(), at_.weight, at_.bias}; }
  NormKernels norm() const { return {compute_, spec_.norm, at_.norm}; }
  std::int64_t n() const { return compute_.rows; }
  std::int64_t H() const { return spec_.router.columns; }
  Bytes e() const { return compute_.element(); }

  const Compute& compute_;
  const ExpertsSpec& spec_;
  std::int64_t group_;
  Part part_;
  const RouterPlaces& at_;
  const Values& values_;
};

Values add_values(ModelBuilder& builder, StreamValue input, const std::string& output_name, const ExpertsSpec& spec,
                  bool is_one_unit) {
  const Compute& compute = builder.compute();
  const std::int64_t n = compute.rows, H = spec.router.columns;
  const ops::RouterShape shape = router_shape_of(spec, n);
  const auto add = [&](const std::string& name, Bytes bytes) { return value_place(builder.add_value(name, bytes)); };
  Values values;
  values.input = input;
  values.output = builder.add_stream_value(output_name, H);
  values.statistics = add(spec.name + " router statistics", norm_statistics_bytes(compute, spec.norm));
  values.scores = add(spec.name + " router scores", n * shape.columns() * kFloat);
  values.log_sums = add(spec.name + " router sums", n * kFloat);
  values.routing = add(spec.name + " routing", ops::routing_bytes(shape));
  values.totals = value_place(spec.totals);
  if (is_one_unit) return values;
  values.sum = add(spec.name + " sum", n * H * kFloat);
  values.dsum = add("d " + spec.name + " sum", n * H * kFloat);
  values.dweights = add("d " + spec.name + " weights", n * shape.places() * kFloat);
  return values;
}

void add_part(BlockLayout& layout, const FileRows& rows) {
  if (rows.tensor.layout == FileLayout::transposed) {
    layout.add_columns(rows.tensor, rows.begin, rows.count);
  } else {
    layout.add_rows(rows.tensor, rows.begin, rows.count);
  }
}

void add_expert(BlockLayout& layout, const ExpertSpec& expert) {
  layout.align();
  for (const FileRows& rows : expert.up) add_part(layout, rows);
  layout.align();
  add_part(layout, expert.down);
  for (const std::optional<FileRows>& bias : {expert.up_bias, expert.down_bias}) {
    if (!bias) continue;
    layout.align();
    add_part(layout, *bias);
  }
}

}  // namespace

FileRows whole(FileTensor tensor) {
  const std::int64_t rows = tensor.rows;
  return {std::move(tensor), 0, rows};
}

std::int64_t expert_elements(const ModelConfig& config) { return 3 * config.hidden * config.expert_width; }

StreamValue add_experts(ModelBuilder& builder, StreamValue input, const std::string& output_name, const ExpertsSpec& spec) {
  const auto experts = std::ssize(spec.experts);
  SPILLWAY_CHECK(experts == spec.router.rows && spec.per_row >= 1 && spec.per_row <= experts, "{}: {} experts of {}, {} a row",
                 spec.name, experts, spec.router.rows, spec.per_row);
  const Compute& compute = builder.compute();
  BlockLayout layout;
  RouterPlaces at;
  at.norm = add_norm(layout, spec.norm);
  at.weight = layout.add_stack({spec.router});
  if (spec.shared_gate) layout.add(*spec.shared_gate);  // one more row of the router's matrix
  if (spec.router_bias) at.bias = layout.add_stack({*spec.router_bias});
  const int router_block = builder.add_block(spec.name + " router", std::move(layout));

  const std::int64_t group = std::min(builder.cuts().experts_a_group, experts);
  std::vector<int> blocks;
  for (std::int64_t first = 0; first < experts; first += group) {
    const std::int64_t last = std::min(first + group, experts) - 1;
    BlockLayout of_group;
    for (std::int64_t i = first; i <= last; ++i) {
      add_expert(of_group, spec.experts[static_cast<std::size_t>(i)]);
    }
    const std::string name = first == last ? fmt::format("{} expert {}", spec.name, first)
                                           : fmt::format("{} experts {} to {}", spec.name, first, last);
    blocks.push_back(builder.add_block(name, std::move(of_group)));
  }
  if (spec.shared) {
    BlockLayout of_shared;
    add_expert(of_shared, *spec.shared);
    blocks.push_back(builder.add_block(spec.name + " shared expert", std::move(of_shared)));
  }
  // A row goes to k experts; which ones varies.
  builder.set_idle((experts - spec.per_row) * 3 * spec.experts.front().width * spec.router.columns);

  const auto groups = std::ssize(blocks);
  const bool is_one_unit = builder.experts_form() == ExpertsForm::layer || groups == 1;
  const Values values = add_values(builder, input, output_name, spec, is_one_unit);
  for (std::int64_t begin = 0; begin < groups;) {
    const Part part{begin, is_one_unit ? groups : begin + 1, groups};
    UnitDraft draft;
    Unit& unit = draft.unit;
    unit.name = is_one_unit ? spec.name + " experts" : builder.block_name(blocks[static_cast<std::size_t>(begin)]);
    unit.blocks = {router_block};
    unit.blocks.insert(unit.blocks.end(), blocks.begin() + part.begin, blocks.begin() + part.end);
    unit.gradient_blocks.assign(unit.blocks.begin() + (part.is_first() ? 0 : 1), unit.blocks.end());
    if (part.is_first()) unit.saved = {values.scores.index, values.log_sums.index};
    if (is_one_unit) unit.saved.insert(unit.saved.end(), {values.statistics.index, values.routing.index});
    const Mixture mixture(compute, spec, group, part, at, values);
    draft.forward = mixture.forward();
    draft.backward = mixture.backward();
    builder.add_unit(std::move(draft));
    begin = part.end;
  }
  return values.output;
}

}  // namespace spillway
