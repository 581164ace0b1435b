// Matrix products of the device's library, as kernel_shapes.h has them. One a stream.
// Not here: which products there are (models/kernels.h). The host's twin, for the emulation, is tests/simt/host_gemm.h.
#pragma once

#include <memory>
#include <string>

#include "memory/error.h"
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
  // Chooses the algorithm of a product, for good: the same one runs each time, whatever memory or alignment there is then. Where
  // it splits sums over blocks, it adds the parts in fp32 in one order, so that bits depend on the algorithm alone: gradients of
  // narrow layers over many tokens are three times as fast as without. Throws Error where the library has none. A product
  // with a bias or a residual has one type.
  virtual void prepare(const ops::GemmSpec& spec) = 0;
  // Enqueues a prepared product; C is added to where `adds`, and then there is no residual.
  virtual void run(const ops::GemmSpec& spec, bool adds, const GemmOperands& operands) = 0;
  // What the bits of all prepared products depend on, as text (gemm_identity.h): library, chip, algorithms. A run is only the
  // same where this is.
  virtual std::string identity() const = 0;
};

// What the library refuses, and so every Gemm.
inline void check_types(const ops::GemmSpec& spec) {
  SPILLWAY_CHECK(spec.input == spec.output || !(spec.has_bias || spec.has_residual),
                 "a product in {} with a bias or a residual in {}", name_of(spec.output), name_of(spec.input));
}

struct GemmOptions {
  // The identity() of the run that goes on: each of its products gets the algorithm that it had, which the library has to take
  // still. Empty: none is pinned.
  std::string pinned = {};
  // For measurements beside the library's best: which of its proposals is taken, and whether it may add parts in any order.
  int proposal = 0;
  bool any_order = false;
};

// By cuBLASLt, which is loaded when this is called: the program starts where it is not. `stream` is a cudaStream_t that outlives
// it. Throws InputError where the library is not there, or where another one or another chip would give a pinned run other bits.
std::unique_ptr<Gemm> make_cublaslt_gemm(void* stream, const GemmOptions& options = {});

}  // namespace spillway::cuda
