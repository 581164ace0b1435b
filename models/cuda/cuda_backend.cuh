// The backend of CUDA: each kernel call is one or a few launches on one stream, complete when the stream has passed them. A call
// of a mixture's experts waits for the stream once.
// Not here: the kernels (norm.cuh and its neighbours), products (gemm.h), scratch (cuda_scratch.h).
#pragma once

#include "models/backend.h"
#include "models/cuda/gemm.h"
#include "models/cuda/gpu.cuh"
#include "models/cuda/mixture.cuh"

namespace spillway::cuda {

class CudaBackend final : public Backend {
 public:
  // All must outlive the backend. Mixtures of experts alone need copies.
  CudaBackend(Queue& queue, Gemm& gemm, HostCopies* copies = nullptr) : queue_(queue), gemm_(gemm), copies_(copies) {}

  void prepare(const CompiledModel& model) override;
  void run(const CallList& list, const PassMemory& memory) override;

 private:
  Queue& queue_;
  Gemm& gemm_;
  HostCopies* copies_;
};

}  // namespace spillway::cuda
