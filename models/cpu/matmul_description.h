// One way to describe a matrix product to oneDNN 2 (Debian 12) and oneDNN 3 (Ubuntu 24.04, Debian 13).
// Not here: what is multiplied, or how it is cut (gemm.cpp).
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

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
