// The product of one row with the rows of a matrix, as fast as memory delivers the matrix: for generation, token by token.
// Not here: threads, bias, residual, rounding (gemm.cpp).
#pragma once

#include <cstdint>

#include "memory/base/bfloat16.h"

namespace spillway::ops {

// sums[j] = x[k] . b[j], for the n rows of b[n,k], `ldb` elements apart. A sum's order depends on k alone.
template <typename E>
void multiply_row(std::int64_t n, std::int64_t k, const float* x, const E* b, std::int64_t ldb, float* sums);

}  // namespace spillway::ops
