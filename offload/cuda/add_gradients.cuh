// Adds one gradient of a block to another in fp32, with the host's bits (optimizer_ops.h: add_gradients). Padding between pieces
// is added, too, and still counts for nothing.
#pragma once

#include "models/cuda/vectors.cuh"

namespace spillway::cuda {

template <int n>
struct AddGradients {
  static constexpr int kThreads = 256;
  std::int64_t elements = 0;  // a multiple of n
  const float* addend = nullptr;
  float* sum = nullptr;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t i = (gpu.block() * kThreads + gpu.thread()) * n;
    if (i < elements) sum_into(gpu, sum + i, load_floats<float, n>(gpu, addend + i), true);
  }
};

// Enqueues the addition; uses packs where both arrays are aligned for them.
inline void device_add_gradients(Queue& queue, std::int64_t elements, const float* addend, float* sum) {
  const auto start = [&]<int n>(const AddGradients<n>& kernel) {
    if (kernel.elements > 0) launch(queue, {(kernel.elements / n + kernel.kThreads - 1) / kernel.kThreads}, kernel);
  };
  const bool is_aligned = (reinterpret_cast<std::uintptr_t>(addend) | reinterpret_cast<std::uintptr_t>(sum)) % 16 == 0;
  if (is_aligned && elements % 4 == 0) {
    start(AddGradients<4>{elements, addend, sum});
  } else {
    start(AddGradients<1>{elements, addend, sum});
  }
}

}  // namespace spillway::cuda
