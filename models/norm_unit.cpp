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

kernels::Norm NormKernels::forward(Place x, Place y, Place statistics, Place residual) const {
  return {.type = compute_.dtype,
          .rows = compute_.rows,
          .hidden = hidden_,
          .epsilon = epsilon_,
          .offset = offset_,
          .x = x,
          .weight = weight_place(compute_, places_.block, places_.weight),
          .bias = weight_place(compute_, places_.block, places_.bias),
          .residual = residual,
          .y = y,
          .statistics = statistics};
}

kernels::NormAgain NormKernels::again(Place x, Place statistics, Place y) const {
  return {.type = compute_.dtype,
          .rows = compute_.rows,
          .hidden = hidden_,
          .offset = offset_,
          .x = x,
          .weight = weight_place(compute_, places_.block, places_.weight),
          .bias = weight_place(compute_, places_.block, places_.bias),
          .statistics = statistics,
          .y = y};
}

kernels::NormBackward NormKernels::backward(DType gradient_type, Place dy, Place x, Place statistics, Place residual_gradient,
                                            Place dx) const {
  return {.type = compute_.dtype,
          .gradient_type = gradient_type,
          .rows = compute_.rows,
          .hidden = hidden_,
          .offset = offset_,
          .dy = dy,
          .x = x,
          .weight = weight_place(compute_, places_.block, places_.weight),
          .bias = weight_place(compute_, places_.block, places_.bias),
          .statistics = statistics,
          .residual_gradient = residual_gradient,
          .dx = dx,
          .dweight = gradient_place(compute_, places_.gradient, places_.weight),
          .dbias = gradient_place(compute_, places_.gradient, places_.bias)};
}

NormOutput add_final_norm(ModelBuilder& builder, StreamValue input, const NormSpec& spec) {
  const Compute& compute = builder.compute();
  const std::int64_t elements = compute.rows * spec.weight.rows;
  NormOutput output;
  output.value = builder.add_value("final norm", elements * compute.element());
  output.gradient = builder.add_value("d final norm", elements * static_cast<Bytes>(sizeof(float)));
  const Place statistics = value_place(builder.add_value("final norm statistics", norm_statistics_bytes(compute, spec)));

  BlockLayout layout;
  const NormKernels norm(compute, spec, add_norm(layout, spec));
  UnitDraft draft;
  draft.unit.name = "final norm";
  draft.unit.blocks = draft.unit.gradient_blocks = {builder.add_block("final norm", std::move(layout))};
  // The statistics are not listed as saved: a few bytes a row are not worth another forward.
  draft.forward.add(norm.forward(value_place(input.value), value_place(output.value), statistics));
  draft.backward.add(norm.backward(DType::float32, value_place(output.gradient), value_place(input.value), statistics, {},
                                   value_place(input.gradient)));
  builder.add_unit(std::move(draft));
  return output;
}

}  // namespace spillway
