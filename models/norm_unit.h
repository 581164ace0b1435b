// RMSNorm or LayerNorm as a part of a unit, and the final norm as a unit of its own.
// Not here: the norm of the heads' q and k (attention.h).
//
// Legend: n rows of a micro-batch, H hidden.
#pragma once

#include <optional>

#include "models/model_builder.h"

namespace spillway {

struct NormSpec {
  FileTensor weight;               // [H]
  std::optional<FileTensor> bias;  // [H]; LayerNorm where there is one, else RMSNorm
  float epsilon = 0;
  float offset = 0;  // added to the stored weights
};

// Places of a norm's parameters in the unit's `block`-th block, and of their gradients in its `gradient`-th.
struct NormPlaces {
  std::int64_t weight = -1, bias = -1;  // elements of the block
  int block = 0, gradient = 0;
};
NormPlaces add_norm(BlockLayout& layout, const NormSpec& spec);

Bytes norm_statistics_bytes(const Compute& compute, const NormSpec& spec);  // bytes that the backward needs besides x

// A norm's kernels over the rows of a micro-batch.
class NormKernels {
 public:
  NormKernels(const Compute& compute, const NormSpec& spec, NormPlaces places)
      : compute_(compute), hidden_(spec.weight.rows), epsilon_(spec.epsilon), offset_(spec.offset), places_(places) {}

  // y (= residual +) norm(x); all [n,H].
  kernels::Norm forward(Place x, Place y, Place statistics, Place residual = {}) const;
  kernels::NormAgain again(Place x, Place statistics, Place y) const;
  // dx = residual_gradient (if any) + the norm's; dy is of gradient_type.
  kernels::NormBackward backward(DType gradient_type, Place dy, Place x, Place statistics, Place residual_gradient,
                                 Place dx) const;

 private:
  Compute compute_;
  std::int64_t hidden_;
  float epsilon_, offset_;
  NormPlaces places_;
};

// The final norm. Its output is a value in the compute type; the gradient of that is fp32, as the head's tiles add to it.
struct NormOutput {
  int value = -1;     // [n,H]
  int gradient = -1;  // [n,H] float
};
NormOutput add_final_norm(ModelBuilder& builder, StreamValue input, const NormSpec& spec);

}  // namespace spillway
