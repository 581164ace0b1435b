// A tensor core's product as one chip computes it: D[16,8] = A[16,16] B[16,8] + C of bf16 or fp16 into fp32.
// Source: MMA-Sim (arXiv 2511.10909): the exact products and C are aligned to the largest exponent among them, each
// truncated there to 24 (sm_80 to 89) or 25 (from sm_90 on) fractional bits, summed, and truncated towards zero to fp32. From
// sm_90 on all sixteen products at once, before that the first eight and then the others.
// Not here: which lane has which element (block.cpp).
#pragma once

#include <cstdint>

namespace spillway::simt {

enum class Chip : std::uint8_t { sm_80, sm_90 };
enum class Half : std::uint8_t { bf16, fp16 };

inline constexpr int kRows = 16, kColumns = 8, kDepth = 16;

// c += a b, of numbers as stored; b is given by its columns.
void multiply_add(Chip chip, Half type, const std::uint16_t (&a)[kRows][kDepth], const std::uint16_t (&b)[kColumns][kDepth],
                  float (&c)[kRows][kColumns]);

}  // namespace spillway::simt
