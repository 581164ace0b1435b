#include "models/kernel_shapes.h"

namespace spillway::ops {
namespace {

GemmSpec dense(DType input, DType output, std::int64_t m, std::int64_t n, std::int64_t k, Transpose a, Transpose b, Store store) {
  GemmSpec spec;
  spec.m = m;
  spec.n = n;
  spec.k = k;
  spec.transpose_a = a;
  spec.transpose_b = b;
  spec.lda = a == Transpose::yes ? m : k;
  spec.ldb = b == Transpose::yes ? k : n;
  spec.ldc = n;
  spec.input = input;
  spec.output = output;
  spec.store = store;
  return spec;
}

GemmSpec with_epilogue(GemmSpec spec, Epilogue epilogue) {
  spec.has_bias = epilogue == Epilogue::bias || epilogue == Epilogue::bias_residual;
  spec.has_residual = epilogue == Epilogue::residual || epilogue == Epilogue::bias_residual;
  spec.ld_residual = spec.has_residual ? spec.n : 0;
  return spec;
}

}  // namespace

GemmSpec linear_forward(DType type, std::int64_t n, std::int64_t in, std::int64_t out, Epilogue epilogue) {
  return with_epilogue(dense(type, type, n, out, in, Transpose::no, Transpose::yes, Store::write), epilogue);
}
GemmSpec linear_input_gradient(DType type, std::int64_t n, std::int64_t in, std::int64_t out, DType output, Store store) {
  return dense(type, output, n, in, out, Transpose::no, Transpose::no, store);
}
GemmSpec linear_weight_gradient(DType type, std::int64_t n, std::int64_t in, std::int64_t out, Store store) {
  return dense(type, DType::float32, out, in, n, Transpose::yes, Transpose::no, store);
}

}  // namespace spillway::ops
