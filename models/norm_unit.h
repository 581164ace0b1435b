// RMSNorm or LayerNorm as a part of a unit, and the final norm as a unit of its own.
// Not here: the norm of the heads' q and k (attention.h), the kernels (ops.h).
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
};

// Where a norm's parameters lie in their block.
struct NormPlaces {
  std::int64_t weight = -1;
  std::int64_t bias = -1;
};
NormPlaces add_norm(BlockLayout& layout, const NormSpec& spec);

// A norm over the rows of a micro-batch. `block` and `block_gradient` are those that hold its parameters.
template <typename E>
class Norm {
 public:
  Norm(const Compute& compute, std::int64_t hidden, float epsilon, NormPlaces places)
      : compute_(compute), hidden_(hidden), epsilon_(epsilon), places_(places) {}

  Bytes statistics_bytes() const;  // of what the backward needs beside x: rstd[n], and mean[n] of LayerNorm
  Bytes backward_scratch_bytes() const;
  void forward(const E* block, const E* x /*[n,H]*/, E* y /*[n,H]*/, float* statistics) const;
  void apply(const E* block, const E* x /*[n,H]*/, const float* statistics, E* y /*[n,H]*/) const;
  // dx = residual_gradient (may be null) + the norm's; G is E or float.
  template <typename G>
  void backward(const E* block, const G* dy /*[n,H]*/, const E* x /*[n,H]*/, const float* statistics,
                const E* residual_gradient /*[n,H]*/, E* dx /*[n,H]*/, float* block_gradient, ops::Store store,
                std::byte* scratch) const;

 private:
  bool is_layer_norm() const { return places_.bias >= 0; }
  Compute compute_;
  std::int64_t hidden_;
  float epsilon_;
  NormPlaces places_;
};

Bytes norm_statistics_bytes(const Compute& compute, const NormSpec& spec);

// The final norm. Its output is a value in the compute type; the gradient of that is fp32, as the head's tiles add to it.
struct NormOutput {
  int value = -1;     // [n,H]
  int gradient = -1;  // [n,H] float
};
NormOutput add_final_norm(ModelBuilder& builder, StreamValue input, std::int64_t hidden, const NormSpec& spec);

}  // namespace spillway
