#include "memory/base/error.h"
#include "models/cuda/gemm.h"

namespace spillway::cuda {

std::unique_ptr<Gemm> make_cublaslt_gemm(void*, const GemmOptions&) {
  throw InputError("this build has no CUDA", "Use --device cpu, or build where a CUDA toolkit is.");
}

}  // namespace spillway::cuda
