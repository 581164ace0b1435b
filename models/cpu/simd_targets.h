// Which instruction sets the kernels are compiled for: the x86-64 baseline, AVX2 and AVX-512; the best is chosen at run time.
// Comes before any Highway header. Not here: the kernels' own choices (bf16 matrix instructions).
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
