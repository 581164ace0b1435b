// Matrix products by the device's library, as kernel_shapes.h describes them. Each stream has a Gemm of its own.
// Not here: which products there are (models/kernels.h). The host's twin, for the emulation, is tests/simt/host_gemm.h.
#pragma once

#include <memory>
#include <string>

#include "memory/base/error.h"
#include "memory/base/types.h"
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
  // Bytes that a product may use while it runs: what the library recommends for the largest chips.
  static constexpr Bytes kWorkspaceBytes = 32 * kMiB;
  static constexpr Bytes kAlignment = 16;

  virtual ~Gemm() = default;
  // Chooses the algorithm of a product for good: the same one runs each time, whatever the memory or its alignment is then. An
  // algorithm that splits sums over blocks adds the parts in fp32 in one order, so that bits depend on the algorithm alone;
  // splitting makes gradients of narrow layers over many tokens three times as fast. Throws Error if the library has no
  // algorithm. A product with a bias or a residual has one type.
  virtual void prepare(const ops::GemmSpec& spec) = 0;
  // Enqueues a prepared product. If `adds`, it is added to C, and there is no residual.
  virtual void run(const ops::GemmSpec& spec, bool adds, const GemmOperands& operands) = 0;
  // All that the bits of the prepared products depend on, as text (gemm_identity.h): library, chip, algorithms. A run has the
  // same bits only where this text is the same.
  virtual std::string identity() const = 0;
};

// Refuses types that the library refuses; every Gemm does the same.
inline void check_types(const ops::GemmSpec& spec) {
  SPILLWAY_CHECK(spec.input == spec.output || !(spec.has_bias || spec.has_residual),
                 "a product in {} with a bias or a residual in {}", name_of(spec.output), name_of(spec.input));
}

struct GemmOptions {
  // The identity() of the run that is continued: each of its products gets the algorithm that it had, if the library still takes
  // it. Empty: no algorithm is pinned.
  std::string pinned = {};
  // For measurements against the library's best: index of the proposal that is taken, and true if parts may be added in any
  // order.
  int proposal = 0;
  bool any_order = false;
};

// A Gemm by cuBLASLt, which is loaded by this call, so that the program starts without it. `stream` is a cudaStream_t that
// outlives the Gemm. Throws InputError if the library is missing, or if another library or chip would give a pinned run other
// bits.
std::unique_ptr<Gemm> make_cublaslt_gemm(void* stream, const GemmOptions& options = {});

}  // namespace spillway::cuda
