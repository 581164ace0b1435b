// Bytes of scratch that CUDA's kernels use: a closed bound from the shape alone.
#pragma once

#include "models/unit_draft.h"

namespace spillway::cuda {

Bytes scratch_bytes(const Kernel& kernel);

}  // namespace spillway::cuda
