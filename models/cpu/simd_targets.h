// The instruction sets that the kernels are compiled for: the x86-64 baseline, AVX2 and AVX-512; the best is chosen at run time.
// Include this before any Highway header. Not here: the kernels' own choices (bf16 matrix instructions).
#pragma once

// The last two are AVX3_SPR and AVX3_ZEN4, for which the Highway of Debian 12 has no names.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | (1LL << 4) | (1LL << 6))
