#include "models/norm_unit.h"

#include <utility>

namespace spillway {

NormPlaces add_norm(BlockLayout& layout, const NormSpec& spec) {
  NormPlaces places;
  places.weight = layout.add_stack({spec.weight});
  if (spec.bias) places.bias = layout.add_stack({*spec.bias});
  return places;
}

Bytes norm_statistics_bytes(const Compute& compute, const NormSpec& spec) {
  return compute.rows * static_cast<Bytes>(sizeof(float)) * (spec.bias ? 2 : 1);
}

template <typename E>
Bytes Norm<E>::statistics_bytes() const {
  return compute_.rows * static_cast<Bytes>(sizeof(float)) * (is_layer_norm() ? 2 : 1);
}

template <typename E>
Bytes Norm<E>::backward_scratch_bytes() const {
  return is_layer_norm() ? ops::layernorm_backward_scratch_bytes(compute_.rows, hidden_)
                         : ops::rmsnorm_backward_scratch_bytes(compute_.rows, hidden_);
}

template <typename E>
void Norm<E>::forward(const E* block, const E* x, E* y, float* statistics) const {
  const std::int64_t n = compute_.rows;
  if (is_layer_norm()) {
    ops::layernorm_forward(compute_.pool, n, hidden_, x, block + places_.weight, block + places_.bias, epsilon_, y,
                           statistics + n, statistics);
  } else {
    ops::rmsnorm_forward(compute_.pool, n, hidden_, x, block + places_.weight, epsilon_, y, statistics);
  }
}

template <typename E>
void Norm<E>::apply(const E* block, const E* x, const float* statistics, E* y) const {
  const std::int64_t n = compute_.rows;
  if (is_layer_norm()) {
    ops::layernorm_apply(compute_.pool, n, hidden_, x, block + places_.weight, block + places_.bias, statistics + n, statistics,
                         y);
  } else {
    ops::rmsnorm_apply(compute_.pool, n, hidden_, x, block + places_.weight, statistics, y);
  }
}

template <typename E>
template <typename G>
void Norm<E>::backward(const E* block, const G* dy, const E* x, const float* statistics, const E* residual_gradient, E* dx,
                       float* block_gradient, ops::Store store, std::byte* scratch) const {
  const std::int64_t n = compute_.rows;
  if (is_layer_norm()) {
    ops::layernorm_backward(compute_.pool, n, hidden_, dy, x, block + places_.weight, statistics + n, statistics,
                            residual_gradient, dx, block_gradient + places_.weight, block_gradient + places_.bias, store,
                            scratch);
  } else {
    ops::rmsnorm_backward(compute_.pool, n, hidden_, dy, x, block + places_.weight, statistics, residual_gradient, dx,
                          block_gradient + places_.weight, store, scratch);
  }
}

template class Norm<float>;
template class Norm<BFloat16>;
template void Norm<float>::backward(const float*, const float*, const float*, const float*, const float*, float*, float*,
                                    ops::Store, std::byte*) const;
template void Norm<BFloat16>::backward(const BFloat16*, const float*, const BFloat16*, const float*, const BFloat16*, BFloat16*,
                                       float*, ops::Store, std::byte*) const;
template void Norm<BFloat16>::backward(const BFloat16*, const BFloat16*, const BFloat16*, const float*, const BFloat16*,
                                       BFloat16*, float*, ops::Store, std::byte*) const;

namespace {

// Places of the values in the unit's calls.
struct FinalNormPlaces {
  int x = -1, y = -1, statistics = -1;
  int dy = -1, x_again = -1, statistics_again = -1, dx = -1;
};

template <typename E>
class FinalNormOps : public UnitOps {
 public:
  FinalNormOps(Norm<E> norm, FinalNormPlaces at) : norm_(std::move(norm)), at_(at) {}

  void forward(const UnitCall& call) override {
    norm_.forward(weights_of<E>(call, 0), value_of<E>(call, at_.x), value_of<E>(call, at_.y),
                  value_of<float>(call, at_.statistics));
  }

  void backward(const UnitCall& call) override {
    norm_.backward(weights_of<E>(call, 0), value_of<float>(call, at_.dy), value_of<E>(call, at_.x_again),
                   value_of<float>(call, at_.statistics_again), static_cast<const E*>(nullptr), value_of<E>(call, at_.dx),
                   gradient_of(call, 0), store_of(call), call.workspace);
  }

 private:
  Norm<E> norm_;
  FinalNormPlaces at_;
};

}  // namespace

NormOutput add_final_norm(ModelBuilder& builder, StreamValue input, std::int64_t hidden, const NormSpec& spec) {
  const Compute& compute = builder.compute();
  BlockLayout layout;
  const NormPlaces places = add_norm(layout, spec);

  const Bytes stream_bytes = compute.rows * hidden * size_of(compute.dtype);
  const Bytes gradient_bytes = compute.rows * hidden * static_cast<Bytes>(sizeof(float));
  NormOutput output;
  output.value = builder.add_value("final norm", stream_bytes);
  output.gradient = builder.add_value("d final norm", gradient_bytes);
  const int statistics = builder.add_value("final norm statistics", norm_statistics_bytes(compute, spec));

  Unit unit;
  unit.name = "final norm";
  unit.blocks = unit.gradient_blocks = {builder.add_block("final norm", std::move(layout))};
  FinalNormPlaces at;
  at.x = add_use(unit.forward, input.value, Access::read);
  at.y = add_use(unit.forward, output.value, Access::write);
  at.statistics = add_use(unit.forward, statistics, Access::write);
  at.dy = add_use(unit.backward, output.gradient, Access::read);
  at.x_again = add_use(unit.backward, input.value, Access::read);
  at.statistics_again = add_use(unit.backward, statistics, Access::read);
  at.dx = add_use(unit.backward, input.gradient, Access::write);
  // The statistics are not listed as saved: a few bytes a row are not worth another forward.
  unit.forward_work.bytes = static_cast<double>(2 * stream_bytes);
  unit.backward_work.bytes = static_cast<double>(2 * stream_bytes + gradient_bytes);

  auto ops = make_ops(compute.dtype, [&]<typename E>() -> std::unique_ptr<UnitOps> {
    Norm<E> norm(compute, hidden, spec.epsilon, places);
    unit.backward_workspace = round_up(norm.backward_scratch_bytes(), 64);
    return std::make_unique<FinalNormOps<E>>(norm, at);
  });
  builder.add_unit(std::move(unit), std::move(ops));
  return output;
}

}  // namespace spillway
