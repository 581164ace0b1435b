// Bytes of scratch that the CPU's kernels use: a closed bound from the shape, and from the threads and the instructions of a
// machine, so that a plan for any machine is made without compiling a kernel. The backend compares it with what the library asks
// for.
#pragma once

#include "memory/plan/machine.h"
#include "models/unit_draft.h"

namespace spillway {

struct CpuTraits {
  int threads = 1;
  Instructions instructions = Instructions::unknown;  // unknown: the most that any needs
};
CpuTraits traits_of_this_cpu(int threads);

Bytes cpu_scratch_bytes(const Kernel& kernel, const CpuTraits& machine);
inline ScratchBound cpu_scratch_bound(const CpuTraits& machine) {
  return [machine](const Kernel& kernel) { return cpu_scratch_bytes(kernel, machine); };
}

}  // namespace spillway
