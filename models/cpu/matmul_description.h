// One way to describe a matrix product to oneDNN 2 (Debian 12) and oneDNN 3 (Ubuntu 24.04, Debian 13), to compile it, and to tell
// it how many threads it has.
// Not here: what is multiplied, or how it is cut (gemm.cpp).
#pragma once

#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "memory/base/types.h"
#include "models/cpu/ops.h"

// The only function that we need of OpenMP, with which the library threads. It is not taken from <omp.h>: each compiler's header
// belongs to a runtime of its own, and the call must reach the library's runtime.
extern "C" void omp_set_num_threads(int threads);

namespace spillway::ops {

// c[m][n] = a[m][k] b[k][n] + bias[1][n]; no bias where its description is empty.
inline dnnl::matmul::primitive_desc describe_matmul(const dnnl::engine& engine, const dnnl::memory::desc& a,
                                                    const dnnl::memory::desc& b, const dnnl::memory::desc& bias,
                                                    const dnnl::memory::desc& c, const dnnl::primitive_attr& attributes = {}) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, a, b, bias, c, attributes};
#else
  return {dnnl::matmul::desc(a, b, bias, c), attributes, engine};
#endif
}

inline void append_factor(dnnl::post_ops& post_ops, float factor) {
#if DNNL_VERSION_MAJOR >= 3
  post_ops.append_eltwise(dnnl::algorithm::eltwise_linear, factor, 0.0f);
#else
  post_ops.append_eltwise(1.0f, dnnl::algorithm::eltwise_linear, factor, 0.0f);
#endif
}

// The library's blocked bf16 kernels are better than fp32 where the CPU has them, and better than ours where it has tiles (AMX);
// its other ways are slower than fp32.
Instructions choose_instructions(const dnnl::engine& engine);

// An operand as the library sees it.
dnnl::memory::desc matrix(std::int64_t rows, std::int64_t columns, Transpose transpose, std::int64_t ld, DType type);

// One shape of slice, compiled, with what each worker binds its pointers to.
struct LibraryProduct {
  struct Call {
    dnnl::memory a, b, c, bias, residual, scratchpad;
    std::unordered_map<int, dnnl::memory> arguments;
  };

  dnnl::matmul primitive;
  std::string implementation;  // as the library calls it
  Bytes scratchpad_bytes = 0;
  std::vector<Call> calls;  // [threads]
};

// A slice's product: dense blocks or windows of the operands.
std::unique_ptr<LibraryProduct> compile_product(const dnnl::engine& engine, int threads, const GemmSpec& slice);

// A slice's operands by themselves.
void make_dense(GemmSpec& slice);
// Rows of a window one behind the other, or back.
void copy_rows(std::int64_t rows, Bytes width, const std::byte* from, Bytes from_ld, std::byte* to, Bytes to_ld);

}  // namespace spillway::ops
