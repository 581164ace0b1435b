// Matrix products of the device's library, as kernel_shapes.h has them. One a backend.
// Not here: which products there are (models/kernels.h). The CPU's twin, for the emulation, is tests/simt/host_gemm.h.
#pragma once

#include <memory>

#include "memory/types.h"
#include "models/kernel_shapes.h"

namespace spillway::cuda {

struct GemmOperands {
  const std::byte *a = nullptr, *b = nullptr, *bias = nullptr, *residual = nullptr;
  std::byte* c = nullptr;
  std::byte* workspace = nullptr;  // Gemm::kWorkspaceBytes
};

class Gemm {
 public:
  // What a product may use meanwhile: enough for what the library recommends on the largest chips.
  static constexpr Bytes kWorkspaceBytes = 32 * kMiB;

  virtual ~Gemm() = default;
  // Chooses the algorithm of a product, for good: the same one runs each time, whatever memory or alignment there is then.
  virtual void prepare(const ops::GemmSpec& spec) = 0;
  // Enqueues a prepared product; C is added to where `adds`.
  virtual void run(const ops::GemmSpec& spec, bool adds, const GemmOperands& operands) = 0;
};

}  // namespace spillway::cuda
