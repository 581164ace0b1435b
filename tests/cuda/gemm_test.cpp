// Matrix products by the device's library: every kind that a linear layer has, beside loops in double precision; and the same
// bits on two streams at once, each with a workspace of its own, whatever its content. On the emulated device the host's twin
// runs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "memory/base/element.h"
#include "memory/base/random.h"
#include "tests/cuda/device.h"

namespace spillway::testing {
namespace {

struct Product {
  ops::GemmSpec spec;
  bool adds = false;
};

// The three products of a layer of this shape, with all that may be fused into them.
std::vector<Product> products_of(DType type, std::int64_t n, std::int64_t in, std::int64_t out) {
  std::vector<Product> products;
  for (const auto epilogue : {ops::Epilogue::none, ops::Epilogue::bias, ops::Epilogue::residual, ops::Epilogue::bias_residual})
    products.push_back({ops::linear_forward(type, n, in, out, epilogue)});
  products.push_back({ops::linear_input_gradient(type, n, in, out, type)});
  if (type != DType::float32) products.push_back({ops::linear_input_gradient(type, n, in, out, DType::float32)});
  for (const bool adds : {false, true})
    products.push_back({ops::linear_weight_gradient(type, n, in, out, adds ? ops::Store::add : ops::Store::write), adds});
  return products;
}

using Bytes16 = device::Buffer<std::byte>;
Bytes16 numbers(std::uint64_t stream, DType type, std::int64_t count) {
  Bytes16 buffer(static_cast<std::size_t>(std::max<std::int64_t>(count, 1) * size_of(type)));
  for (std::int64_t i = 0; i < count; ++i)
    set_element(
        buffer.data(), type, i,
        static_cast<double>(static_cast<std::int32_t>(random_bits(2, 0, stream, static_cast<std::uint64_t>(i)))) * 0x1p-31);
  return buffer;
}

struct Operands {
  Bytes16 a, b, bias, residual;
  explicit Operands(const ops::GemmSpec& s)
      : a(numbers(1, s.input, s.m * s.k)),
        b(numbers(2, s.input, s.k * s.n)),
        bias(numbers(3, s.input, s.has_bias ? s.n : 0)),
        residual(numbers(4, s.output, s.has_residual ? s.m * s.n : 0)) {}
};

// A stream with its library and its workspace.
struct Stream {
  device::Queue queue;
  std::unique_ptr<cuda::Gemm> gemm = device::make_gemm(queue);
  Bytes16 workspace{static_cast<std::size_t>(cuda::Gemm::kWorkspaceBytes)};

  void run(const Product& product, const Operands& of, const Bytes16& c) {
    gemm->run(product.spec, product.adds,
              {.a = of.a.data(),
               .b = of.b.data(),
               .bias = product.spec.has_bias ? of.bias.data() : nullptr,
               .residual = product.spec.has_residual ? of.residual.data() : nullptr,
               .c = c.data(),
               .workspace = workspace.data()});
  }
};

double expected_at(const Product& product, const Operands& of, std::int64_t i, std::int64_t j, double before) {
  const ops::GemmSpec& s = product.spec;
  double sum = product.adds ? before : 0;
  for (std::int64_t l = 0; l < s.k; ++l) {
    const std::int64_t in_a = s.transpose_a == ops::Transpose::yes ? l * s.lda + i : i * s.lda + l,
                       in_b = s.transpose_b == ops::Transpose::yes ? j * s.ldb + l : l * s.ldb + j;
    sum += element(of.a.data(), s.input, in_a) * element(of.b.data(), s.input, in_b);
  }
  if (s.has_bias) sum += element(of.bias.data(), s.input, j);
  return s.has_residual ? sum + element(of.residual.data(), s.output, i * s.ld_residual + j) : sum;
}

void check(const Product& product, Stream& first, Stream& second) {
  const ops::GemmSpec& s = product.spec;
  SCOPED_TRACE(fmt::format("{} {} x {} x {}{}{}{}", name_of(s.input), s.m, s.n, s.k, s.has_bias ? " bias" : "",
                           s.has_residual ? " residual" : "", product.adds ? " adds" : ""));
  const Operands operands(s);
  const Bytes16 one = numbers(5, s.output, s.m * s.n), other = numbers(5, s.output, s.m * s.n),
                before = numbers(5, s.output, s.m * s.n);
  for (Stream* stream : {&first, &second}) stream->gemm->prepare(s);
  // The two workspaces have different content.
  std::memset(second.workspace.data(), 0x3c, second.workspace.all().size());
  first.run(product, operands, one), second.run(product, operands, other);
  first.queue.synchronize(), second.queue.synchronize();
  EXPECT_EQ(std::memcmp(one.data(), other.data(), one.all().size()), 0) << "other bits on the other stream";
  const double unit = s.output == DType::float32 ? 1e-5 : s.output == DType::bfloat16 ? 1.0 / 128 : 1.0 / 1024;
  for (std::int64_t i = 0; i < s.m; ++i) {
    for (std::int64_t j = 0; j < s.n; ++j) {
      const double expected = expected_at(product, operands, i, j, element(before.data(), s.output, i * s.n + j));
      ASSERT_NEAR(element(one.data(), s.output, i * s.n + j), expected, unit * std::sqrt(static_cast<double>(s.k) + 4))
          << i << ", " << j;
    }
  }
}

TEST(Products, AreTheSameOnAnyStreamWithAnyWorkspace) {
  for (const DType type : {DType::bfloat16, DType::float16, DType::float32}) {
    Stream first, second;
    for (const auto& [n, in, out] : {std::array<std::int64_t, 3>{16, 64, 32}, {1, 48, 8}, {40, 136, 72}})
      for (const Product& product : products_of(type, n, in, out)) check(product, first, second);
    EXPECT_EQ(first.gemm->identity(), second.gemm->identity());
  }
}

TEST(Products, ThatWerePinnedAreTakenAgain) {
#if defined(__CUDACC__)
  device::Queue queue;
  const ops::GemmSpec spec = ops::linear_forward(DType::bfloat16, 256, 512, 128);
  const auto first = device::make_gemm(queue);
  first->prepare(spec);
  const auto again = cuda::make_cublaslt_gemm(queue.stream(), {.pinned = first->identity()});
  again->prepare(spec);
  EXPECT_EQ(again->identity(), first->identity());
  std::string of_another = first->identity();
  of_another.replace(of_another.find(" sm_"), 6, " sm_7");
  EXPECT_THROW(cuda::make_cublaslt_gemm(queue.stream(), {.pinned = of_another}), Error);
#else
  GTEST_SKIP() << "the emulated device's products are the host's";
#endif
}

}  // namespace
}  // namespace spillway::testing
