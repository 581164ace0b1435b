#include "models/mlp.h"

#include <algorithm>
#include <utility>

#include "memory/error.h"

namespace spillway {
namespace {

bool is_gated(Activation activation) { return activation == Activation::silu; }

// Where the values of a tile stand in its calls; -1: the tile has no such value.
struct MlpPlaces {
  int x = -1, statistics = -1, up = -1, sum = -1, y = -1;                               // forward
  int dy = -1, x_again = -1, statistics_again = -1, up_again = -1, dsum = -1, dx = -1;  // backward
  std::int64_t up_weight = -1, up_bias = -1, down_weight = -1, down_bias = -1;          // in the tile's block
  int norm_block = 0, norm_gradient = -1;                                               // among the call's weights, gradients
  int block = 0;
};

enum class Part : std::uint8_t { only, first, middle, last };
bool is_first(Part part) { return part == Part::only || part == Part::first; }
bool is_last(Part part) { return part == Part::only || part == Part::last; }

struct MlpShape {
  std::int64_t hidden = 0;   // H
  std::int64_t columns = 0;  // I of this tile
  Activation activation = Activation::silu;
  Part part = Part::only;
  std::int64_t up_rows() const { return is_gated(activation) ? 2 * columns : columns; }  // U
};

template <typename E>
class MlpOps : public UnitOps {
 public:
  MlpOps(const Compute& compute, const MlpShape& shape, Norm<E> norm, const MlpPlaces& at)
      : compute_(compute), shape_(shape), norm_(std::move(norm)), at_(at), forward_(compute.engine), backward_(compute.engine) {
    size_forward();
    if (compute_.context == 0) size_backward();
  }

  const PassSize& forward_size() const { return forward_; }
  const PassSize& backward_size() const { return backward_; }

  void forward(const UnitCall& call) override {
    const E* block = weights_of<E>(call, at_.block);
    const E* norm_block = weights_of<E>(call, at_.norm_block);
    const E* x = value_of<E>(call, at_.x);
    E* xn = region_of<E>(call, forward_xn_);
    E* up = value_of<E>(call, at_.up);
    std::byte* scratch = call.workspace + forward_.scratch_offset();
    if (is_first(shape_.part)) {
      // Other tiles read the statistics too: they are no saved value, and a recomputation gets none.
      float* statistics = value_of<float>(call, at_.statistics);
      norm_.forward(norm_block, x, xn, statistics != nullptr ? statistics : region_of<float>(call, forward_statistics_));
    } else {
      norm_.apply(norm_block, x, value_of<float>(call, at_.statistics), xn);
    }
    run(up_, {.a = xn, .b = block + at_.up_weight, .c = up, .bias = optional(block, at_.up_bias)}, scratch);
    if (call.pass == ForwardPass::recompute) return;

    E* h = region_of<E>(call, forward_h_);
    if (is_gated(shape_.activation)) {
      ops::swiglu_forward(compute_.pool, compute_.rows, shape_.columns, up, h);
    } else {
      ops::gelu_forward(compute_.pool, gelu(), compute_.rows * shape_.columns, up, h);
    }
    void* sum = shape_.part == Part::only ? static_cast<void*>(value_of<E>(call, at_.y)) : value_of<float>(call, at_.sum);
    run(down_, {.a = h, .b = block + at_.down_weight, .c = sum, .bias = optional(block, at_.down_bias), .residual = x}, scratch);
    if (shape_.part == Part::last) {
      ops::cast_from_float(compute_.pool, compute_.rows * shape_.hidden, value_of<float>(call, at_.sum),
                           value_of<E>(call, at_.y));
    }
  }

  void backward(const UnitCall& call) override {
    const E* block = weights_of<E>(call, at_.block);
    const E* norm_block = weights_of<E>(call, at_.norm_block);
    const E* x = value_of<E>(call, at_.x_again);
    const E* dy = value_of<E>(call, at_.dy);
    const E* up = value_of<E>(call, at_.up_again);
    const float* statistics = value_of<float>(call, at_.statistics_again);
    float* gradient = gradient_of(call, at_.block);
    const ops::Store store = store_of(call);
    std::byte* scratch = call.workspace + backward_.scratch_offset();

    E* dh = region_of<E>(call, backward_dh_);
    E* h = region_of<E>(call, backward_h_);
    E* dup = region_of<E>(call, backward_dup_);
    run(down_input_, {.a = dy, .b = block + at_.down_weight, .c = dh}, scratch);
    if (is_gated(shape_.activation)) {
      ops::swiglu_backward(compute_.pool, compute_.rows, shape_.columns, dh, up, dup, h);
    } else {
      ops::gelu_backward(compute_.pool, gelu(), compute_.rows * shape_.columns, dh, up, dup, h);
    }
    run(with_store(down_gradient_, store), {.a = dy, .b = h, .c = gradient + at_.down_weight}, scratch);
    if (at_.down_bias >= 0) column_sums(shape_.hidden, dy, gradient + at_.down_bias, store, scratch);

    E* xn = region_of<E>(call, backward_xn_);
    norm_.apply(norm_block, x, statistics, xn);
    run(with_store(up_gradient_, store), {.a = dup, .b = xn, .c = gradient + at_.up_weight}, scratch);
    if (at_.up_bias >= 0) column_sums(shape_.up_rows(), dup, gradient + at_.up_bias, store, scratch);

    if (shape_.part == Part::only) {
      E* dxn = region_of<E>(call, backward_dxn_);
      run(up_input_, {.a = dup, .b = block + at_.up_weight, .c = dxn}, scratch);
      finish_backward(call, dxn, norm_block, x, statistics, dy, scratch);
    } else {
      float* dxn = value_of<float>(call, at_.dsum);
      run(up_input_, {.a = dup, .b = block + at_.up_weight, .c = dxn}, scratch);
      if (is_first(shape_.part)) finish_backward(call, dxn, norm_block, x, statistics, dy, scratch);
    }
  }

 private:
  ops::Gelu gelu() const { return shape_.activation == Activation::gelu_tanh ? ops::Gelu::tanh : ops::Gelu::exact; }
  static const E* optional(const E* block, std::int64_t place) { return place < 0 ? nullptr : block + place; }
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

  template <typename G>
  void finish_backward(const UnitCall& call, const G* dxn, const E* norm_block, const E* x, const float* statistics, const E* dy,
                       std::byte* scratch) {
    norm_.backward(norm_block, dxn, x, statistics, dy, value_of<E>(call, at_.dx), gradient_of(call, at_.norm_gradient),
                   store_of(call), scratch);
  }

  void size_forward() {
    const std::int64_t n = compute_.rows, H = shape_.hidden, I = shape_.columns, U = shape_.up_rows();
    const Bytes element = size_of(compute_.dtype);
    forward_xn_ = forward_.reserve(n * H * element);
    forward_h_ = forward_.reserve(n * I * element);
    if (is_first(shape_.part)) forward_statistics_ = forward_.reserve(norm_.statistics_bytes());
    up_ =
        forward_.gemm(ops::linear_forward(compute_.dtype, n, H, U, at_.up_bias < 0 ? ops::Epilogue::none : ops::Epilogue::bias));
    // The first tile brings the residual and the bias into the sum; the last one rounds it.
    ops::GemmSpec down = ops::linear_forward(compute_.dtype, n, I, H,
                                             !is_first(shape_.part) ? ops::Epilogue::none
                                             : at_.down_bias < 0    ? ops::Epilogue::residual
                                                                    : ops::Epilogue::bias_residual);
    if (shape_.part != Part::only) down.output = DType::float32;
    if (!is_first(shape_.part)) down.store = ops::Store::add;
    down_ = forward_.gemm(down);
    forward_.add_moved(static_cast<double>((2 * n * H + n * (U + I)) * element));
    if (shape_.part == Part::last) forward_.add_moved(static_cast<double>(n * H * (element + 4)));
  }

  void size_backward() {
    const std::int64_t n = compute_.rows, H = shape_.hidden, I = shape_.columns, U = shape_.up_rows();
    const Bytes element = size_of(compute_.dtype);
    backward_dup_ = backward_.reserve(n * U * element);
    // dh and h are done with when xn and dxn are needed.
    const Bytes wide = round_up(n * I * element, 64), narrow = round_up(n * H * element, 64);
    const bool holds_dxn = shape_.part == Part::only;
    const Bytes shared = backward_.reserve(std::max(2 * wide, (holds_dxn ? 2 : 1) * narrow));
    backward_dh_ = backward_xn_ = shared;
    backward_h_ = shared + wide;
    backward_dxn_ = shared + narrow;

    down_input_ = backward_.gemm(ops::linear_input_gradient(compute_.dtype, n, I, H, compute_.dtype));
    const DType sum_type = holds_dxn ? compute_.dtype : DType::float32;
    const ops::Store sum_store = is_last(shape_.part) ? ops::Store::write : ops::Store::add;
    up_input_ = backward_.gemm(ops::linear_input_gradient(compute_.dtype, n, H, U, sum_type, sum_store));
    for (const ops::Store store : {ops::Store::write, ops::Store::add}) {
      const double times = store == ops::Store::write ? 1 : 0;  // one of the two runs
      down_gradient_ = backward_.gemm(ops::linear_weight_gradient(compute_.dtype, n, I, H, store), times);
      up_gradient_ = backward_.gemm(ops::linear_weight_gradient(compute_.dtype, n, H, U, store), times);
    }
    if (at_.down_bias >= 0) backward_.add_scratch(ops::column_sums_scratch_bytes(n, H));
    if (at_.up_bias >= 0) backward_.add_scratch(ops::column_sums_scratch_bytes(n, U));
    backward_.add_scratch(norm_.backward_scratch_bytes());
    backward_.add_moved(static_cast<double>((n * (2 * I + 2 * U) + 2 * n * H) * element));
    if (is_first(shape_.part)) backward_.add_moved(static_cast<double>(4 * n * H * element));
  }

  Compute compute_;
  MlpShape shape_;
  Norm<E> norm_;
  MlpPlaces at_;
  PassSize forward_, backward_;
  Bytes forward_xn_ = 0, forward_h_ = 0, forward_statistics_ = 0;
  Bytes backward_dup_ = 0, backward_dh_ = 0, backward_h_ = 0, backward_xn_ = 0, backward_dxn_ = 0;
  ops::GemmSpec up_, down_, down_input_, down_gradient_, up_gradient_, up_input_;
};

// Values that all tiles of one MLP share.
struct MlpValues {
  StreamValue input, output;
  int statistics = -1;
  int sum = -1, dsum = -1;  // [n,H] float
  int norm_block = -1;      // -1: the norm lies in the only tile's block
  NormPlaces norm_places;
};

void add_mlp_tile(ModelBuilder& builder, const MlpSpec& spec, MlpValues& values, const MlpShape& shape, std::int64_t column_begin,
                  const std::string& name) {
  const Compute& compute = builder.compute();
  const Part part = shape.part;
  MlpPlaces at;
  BlockLayout layout;
  if (part == Part::only) values.norm_places = add_norm(layout, spec.norm);
  at.up_weight = layout.align();
  for (const FileTensor& weight : spec.up_weights) layout.add_rows(weight, column_begin, shape.columns);
  if (!spec.up_biases.empty()) {
    at.up_bias = layout.align();
    for (const FileTensor& bias : spec.up_biases) layout.add_rows(bias, column_begin, shape.columns);
  }
  at.down_weight = layout.align();
  layout.add_columns(spec.down_weight, column_begin, shape.columns);
  if (spec.down_bias && is_first(part)) at.down_bias = layout.add_stack({*spec.down_bias});

  Unit unit;
  unit.name = name;
  unit.blocks = unit.gradient_blocks = {builder.add_block(name, std::move(layout))};
  if (part == Part::only) {
    at.norm_gradient = 0;
  } else {
    unit.blocks.push_back(values.norm_block);
    at.norm_block = 1;
    if (part == Part::first) {
      unit.gradient_blocks.push_back(values.norm_block);
      at.norm_gradient = 1;
    }
  }

  const int up = builder.add_value(name + " up", compute.rows * shape.up_rows() * size_of(compute.dtype));
  at.x = add_use(unit.forward, values.input.value, Access::read);
  at.statistics = add_use(unit.forward, values.statistics, is_first(part) ? Access::write : Access::read);
  at.up = add_use(unit.forward, up, Access::write);
  if (part != Part::only) at.sum = add_use(unit.forward, values.sum, is_first(part) ? Access::write : Access::update);
  if (is_last(part)) at.y = add_use(unit.forward, values.output.value, Access::write);
  at.dy = add_use(unit.backward, values.output.gradient, Access::read);
  at.x_again = add_use(unit.backward, values.input.value, Access::read);
  at.statistics_again = add_use(unit.backward, values.statistics, Access::read);
  at.up_again = add_use(unit.backward, up, Access::read);
  if (part != Part::only) at.dsum = add_use(unit.backward, values.dsum, is_last(part) ? Access::write : Access::update);
  if (is_first(part)) at.dx = add_use(unit.backward, values.input.gradient, Access::write);
  unit.saved = {up};
  if (part == Part::only) unit.saved.push_back(values.statistics);

  auto ops = make_ops(compute.dtype, [&]<typename E>() -> std::unique_ptr<UnitOps> {
    Norm<E> norm(compute, shape.hidden, spec.norm.epsilon, values.norm_places);
    auto mlp = std::make_unique<MlpOps<E>>(compute, shape, norm, at);
    unit.forward_work = mlp->forward_size().work();
    unit.backward_work = mlp->backward_size().work();
    unit.forward_workspace = mlp->forward_size().workspace();
    unit.backward_workspace = mlp->backward_size().workspace();
    return mlp;
  });
  builder.add_unit(std::move(unit), std::move(ops));
}

}  // namespace

std::int64_t mlp_matrix_elements(const ModelConfig& config) {
  return (is_gated(config.activation) ? 3 : 2) * config.hidden * config.mlp_width;
}

StreamValue add_mlp(ModelBuilder& builder, StreamValue input, const std::string& output_name, const MlpSpec& spec) {
  const Compute& compute = builder.compute();
  const std::int64_t H = spec.down_weight.rows, I = spec.down_weight.columns;
  SPILLWAY_CHECK(spec.up_weights.size() == (is_gated(spec.activation) ? 2u : 1u), "{}: {} matrices before the activation",
                 spec.name, spec.up_weights.size());
  const std::int64_t cut = std::min(builder.cuts().mlp_columns, I);
  const std::int64_t tiles = (I + cut - 1) / cut;

  MlpValues values;
  values.input = input;
  values.output = builder.add_stream_value(output_name, H);
  values.statistics = builder.add_value(spec.name + " statistics", norm_statistics_bytes(compute, spec.norm));
  if (tiles == 1) {
    add_mlp_tile(builder, spec, values, {H, I, spec.activation, Part::only}, 0, spec.name);
    return values.output;
  }
  const Bytes sum_bytes = compute.rows * H * static_cast<Bytes>(sizeof(float));
  values.sum = builder.add_value(spec.name + " sum", sum_bytes);
  values.dsum = builder.add_value("d " + spec.name + " sum", sum_bytes);
  BlockLayout layout;
  values.norm_places = add_norm(layout, spec.norm);
  values.norm_block = builder.add_block(spec.name + " norm", std::move(layout));
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    const Part part = tile == 0 ? Part::first : tile + 1 == tiles ? Part::last : Part::middle;
    const std::int64_t columns = std::min(cut, I - tile * cut);
    add_mlp_tile(builder, spec, values, {H, columns, spec.activation, part}, tile * cut,
                 fmt::format("{} tile {}", spec.name, tile));
  }
  return values.output;
}

}  // namespace spillway
