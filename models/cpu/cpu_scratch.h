// How much scratch the CPU's kernels use: a closed bound from the shape, the threads and the instructions of a machine, so that a
// plan for any machine is made without compiling a kernel. The backend compares it with what the library asks for.
#pragma once

#include "models/unit_draft.h"

namespace spillway {

struct CpuTraits {
  int threads = 1;
  ops::Bf16Products bf16 = ops::Bf16Products::own;
};
inline CpuTraits traits_of_this_cpu(int threads) { return {threads, ops::bf16_products_here()}; }

Bytes cpu_scratch_bytes(const Kernel& kernel, const CpuTraits& machine);
inline ScratchBound cpu_scratch_bound(const CpuTraits& machine) {
  return [machine](const Kernel& kernel) { return cpu_scratch_bytes(kernel, machine); };
}

}  // namespace spillway
