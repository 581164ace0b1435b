// The inner half of a bf16 matrix product on CPUs with AVX-512 bf16: packing of B, and row strips of A times packed B.
// Not here: threads, slices, other CPUs (gemm.cpp asks bf16_kernels_run() first, and leaves those to the library).
//
// Packed B [k, n]: panels of 64 columns, each [k/2][64] pairs of neighbours along k. k is even.
#pragma once

#include <cstdint>

#include "memory/base/bfloat16.h"
#include "memory/base/types.h"
#include "models/cpu/ops.h"

namespace spillway::ops {

bool bf16_kernels_run();

inline constexpr std::int64_t kPanelColumns = 64;
constexpr Bytes packed_bytes(std::int64_t k, std::int64_t n) {
  return (n + kPanelColumns - 1) / kPanelColumns * kPanelColumns * k * 2;
}
// B is [k,n], or [n,k] transposed.
void pack_bf16(std::int64_t k, std::int64_t n, const BFloat16* b, std::int64_t ldb, Transpose transpose, std::uint32_t* packed);

// Destination of the sums. `partial` holds fp32 sums between the parts of a long k; it is C itself where C is plain fp32.
struct Bf16Output {
  float* partial = nullptr;  // [m,n]; may be null where k has one part
  std::int64_t ld_partial = 0;
  bool starts_from_partial = false;
  bool ends_in_partial = false;  // else in c, with the terms given below
  void* c = nullptr;             // [m,n] from element c_offset on, bf16 or fp32
  bool c_is_float = false;
  std::int64_t c_offset = 0;
  std::int64_t ldc = 0;
  bool adds_to_c = false;
  float scale = 1;                     // of the product
  const BFloat16* bias = nullptr;      // [n]
  const BFloat16* residual = nullptr;  // [m,n]
  std::int64_t ld_residual = 0;
};
void multiply_bf16(std::int64_t m, std::int64_t n, std::int64_t k, const BFloat16* a, std::int64_t lda,
                   const std::uint32_t* packed, const Bf16Output& output);

}  // namespace spillway::ops
