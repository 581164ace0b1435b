// Transposes a block of a row-major matrix: y[columns,rows] = x[rows,columns]^T, in 128-bit vectors (every x86-64 has them).
// Not here: threads; a caller cuts the matrix into blocks that stay in a cache.
#pragma once

#include <cstdint>

namespace spillway::ops {

// Elements of 16 bits (bf16) and 32 bits (fp32); ldx and ldy in elements.
void transpose_block(std::int64_t rows, std::int64_t columns, const std::uint16_t* x, std::int64_t ldx, std::uint16_t* y,
                     std::int64_t ldy);
void transpose_block(std::int64_t rows, std::int64_t columns, const std::uint32_t* x, std::int64_t ldx, std::uint32_t* y,
                     std::int64_t ldy);

}  // namespace spillway::ops
