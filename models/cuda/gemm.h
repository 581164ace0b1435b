// Matrix products of the device's library, as kernel_shapes.h has them. One a stream.
// Not here: which products there are (models/kernels.h). The host's twin, for the emulation, is tests/simt/host_gemm.h.
#pragma once

#include <memory>
#include <string>

#include "memory/types.h"
#include "models/kernel_shapes.h"

namespace spillway::cuda {

// Addresses on the device, multiples of kAlignment; `bias` and `residual` where the product has them.
struct GemmOperands {
  const std::byte *a = nullptr, *b = nullptr, *bias = nullptr, *residual = nullptr;
  std::byte* c = nullptr;
  std::byte* workspace = nullptr;  // Gemm::kWorkspaceBytes
};

class Gemm {
 public:
  // What a product may use meanwhile: what the library recommends for the largest chips.
  static constexpr Bytes kWorkspaceBytes = 32 * kMiB;
  static constexpr Bytes kAlignment = 16;

  virtual ~Gemm() = default;
  // Chooses the algorithm of a product, for good: the same one runs each time, whatever memory or alignment there is then. None
  // splits the sum over blocks, so that bits depend on the algorithm alone. Throws Error where the library has none.
  virtual void prepare(const ops::GemmSpec& spec) = 0;
  // Enqueues a prepared product; C is added to where `adds`, and then there is no residual.
  virtual void run(const ops::GemmSpec& spec, bool adds, const GemmOperands& operands) = 0;
  // What the bits of all prepared products depend on, in hexadecimal: library, chip, algorithms. A run is only the same where
  // this is.
  virtual std::string identity() const = 0;
};

// By cuBLASLt, which is loaded when this is called: the program starts where it is not. `stream` is a cudaStream_t that outlives
// it. Throws InputError where the library is not there.
std::unique_ptr<Gemm> make_cublaslt_gemm(void* stream);

}  // namespace spillway::cuda
