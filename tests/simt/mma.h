// A tensor core's product as one chip computes it: D[16,8] = A[16,16] B[16,8] + C of bf16 or fp16 into fp32.
// Source: MMA-Sim (arXiv 2511.10909): the exact products and C are aligned to the largest exponent among them, each truncated
// there to 24 (sm_80 to 89) or 25 (from sm_90 on) fractional bits, summed, and truncated towards zero to fp32. From sm_90 on all
// sixteen products are summed at once; before that the first eight, and then the others.
// A warpgroup's products are made the same way: on an H100 gradients have the same bits by either.
// Not here: which lane has which element (block.cpp, warpgroup.cpp).
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace spillway::simt {

// Only sm_90 has products of warpgroups.
enum class Chip : std::uint8_t { sm_80, sm_90, sm_120 };
enum class Half : std::uint8_t { bf16, fp16 };

inline constexpr int kRows = 16, kColumns = 8, kDepth = 16;

// A row of A or a column of B, as stored.
using Line = std::array<std::uint16_t, kDepth>;
// c += a b for as many rows and columns as are given. c has its rows one after the other.
void multiply_add(Chip chip, Half type, std::span<const Line> rows, std::span<const Line> columns, float* c);

}  // namespace spillway::simt
