// One way to describe a matrix product to oneDNN 2 (Debian 12) and oneDNN 3 (Ubuntu 24.04, Debian 13), and to tell it how many
// threads it has.
// Not here: what is multiplied, or how it is cut (gemm.cpp).
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

// All that is wanted of OpenMP, with which the library threads. Not from <omp.h>: each compiler's own belongs to a runtime of its
// own, and it is the library's that must hear it.
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

}  // namespace spillway::ops
