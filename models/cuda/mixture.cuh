// A mixture's calls on the device: launches of the router's kernels, and of each expert's products in pieces, as on the CPU. How
// many rows an expert has is known on the device alone, so it comes to the host once a call: launches are then of exactly the
// work that there is.
// Not here: the kernels (routing.cuh, expert_rows.cuh), products (gemm.h).
#pragma once

#include <cstdint>
#include <functional>

#include "models/backend.h"
#include "models/cuda/gemm.h"
#include "models/cuda/gpu.cuh"

namespace spillway::cuda {

// Brings words of the device to the host. Waits until the stream has come to the copy.
class HostCopies {
 public:
  virtual ~HostCopies() = default;
  // The result is valid until the next call.
  virtual const std::int32_t* fetch(const std::int32_t* from, std::int64_t count) = 0;
};

// What a mixture's call runs with.
struct MixtureRun {
  Queue& queue;
  Gemm& gemm;
  const PassMemory& memory;
  std::byte* scratch;
  HostCopies* copies;
  std::function<void(const kernels::Activate&)> activate;
  std::function<void(const kernels::ActivateBackward&)> activate_backward;
};

void run(const MixtureRun& with, const kernels::Route& call);
void run(const MixtureRun& with, const kernels::AddRouting& call);
void run(const MixtureRun& with, const kernels::RouteBackward& call);
void run(const MixtureRun& with, const kernels::Experts& call);
void run(const MixtureRun& with, const kernels::ExpertsBackward& call);

}  // namespace spillway::cuda
