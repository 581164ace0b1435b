// The backend of CUDA: each kernel call is one or a few launches on one stream, complete when the stream has passed them.
// Not here: the kernels (norm.cuh and its neighbours), products (gemm.h), scratch (cuda_scratch.h).
#pragma once

#include "models/backend.h"
#include "models/cuda/gemm.h"
#include "models/cuda/gpu.cuh"

namespace spillway::cuda {

class CudaBackend final : public Backend {
 public:
  // The queue and the gemm must outlive the backend.
  CudaBackend(Queue& queue, Gemm& gemm) : queue_(queue), gemm_(gemm) {}

  void prepare(const CompiledModel& model) override;
  void run(const CallList& list, const PassMemory& memory) override;

 private:
  Queue& queue_;
  Gemm& gemm_;
};

}  // namespace spillway::cuda
