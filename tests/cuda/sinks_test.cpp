// The kernels that gpt-oss adds, on the emulated device beside the plain loops: clamped gates, and the sinks of attention.
#include "tests/cuda/kernel_testing.h"

namespace spillway::testing {
namespace {

// Gates and ups beyond the limits on both sides, and heads of a size that fills no pack.
TEST(OnDeviceAlone, ClampedGates) {
  for (const DType type : {DType::float32, DType::bfloat16, DType::float16}) {
    for (const std::int64_t columns : {7, 40}) {
      const auto large = [&](Operands& of) { return of.numbers(type, 9 * 2 * columns, -12, 12); };
      check_kernel(
          [&](Operands& of) {
            return kernels::Activate{type,      Activation::clamped_swiglu,   true, 9, columns,
                                     large(of), of.numbers(type, 9 * columns)};
          },
          "clamped gates");
      check_kernel(
          [&](Operands& of) {
            return kernels::ActivateBackward{type,
                                             Activation::clamped_swiglu,
                                             true,
                                             9,
                                             columns,
                                             of.numbers(type, 9 * columns),
                                             large(of),
                                             of.numbers(type, 18 * columns),
                                             of.numbers(type, 9 * columns)};
          },
          "gradients of clamped gates");
    }
  }
}

TEST(OnDeviceAlone, Sinks) {
  for (const DType type : {DType::float32, DType::bfloat16, DType::float16}) {
    const ops::AttentionShape shape{.sequences = 2, .queries = 300, .keys = 300, .heads = 3, .kv_heads = 3, .head_dim = 20};
    const std::int64_t rows = shape.sequences * shape.queries, elements = rows * shape.heads * shape.head_dim;
    check_kernel(
        [&](Operands& of) {
          return kernels::Sink{type, shape, of.numbers(type, shape.heads), of.numbers(DType::float32, rows * shape.heads),
                               of.numbers(type, elements)};
        },
        "sinks");
    check_kernel(
        [&](Operands& of) {
          return kernels::SinkBackward{type,
                                       shape,
                                       of.numbers(type, shape.heads),
                                       of.numbers(DType::float32, rows * shape.heads),
                                       of.numbers(type, elements),
                                       of.numbers(type, elements),
                                       of.numbers(DType::float32, shape.heads)};
        },
        "gradients of sinks");
  }
}

}  // namespace
}  // namespace spillway::testing
