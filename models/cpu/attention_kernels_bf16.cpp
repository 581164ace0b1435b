// Attention's inner loops with AVX-512's bf16 dot products.
#include "models/cpu/attention_kernels.h"

namespace spillway::ops::attention {
const Kernels<BFloat16>* kernels_bf16_native() { return nullptr; }
}  // namespace spillway::ops::attention
