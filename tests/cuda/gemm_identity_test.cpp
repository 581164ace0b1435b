// The text that pins a run's matrix products: it reads back as it was written, and no other text is accepted.
#include "models/cuda/gemm_identity.h"

#include <gtest/gtest.h>

#include <random>

#include "memory/base/error.h"

namespace spillway::cuda {
namespace {

GemmIdentity some_identity(std::uint64_t seed, int products) {
  std::mt19937_64 random(seed);
  GemmIdentity identity{.library_version = 130000 + random() % 1000, .capability = 90, .processors = 132, .products = {}};
  for (int i = 0; i < products; ++i) {
    const auto size = [&] { return static_cast<std::int64_t>(1 + random() % 300000); };
    PinnedProduct product{.spec = ops::linear_forward(static_cast<DType>(random() % 3), size(), size(), size(),
                                                      static_cast<ops::Epilogue>(random() % 4)),
                          .adds = random() % 2 == 0};
    if (i % 3 == 1) product.spec = ops::linear_weight_gradient(DType::bfloat16, size(), size(), size(), ops::Store::add);
    for (std::uint64_t& word : product.algorithm) word = random() >> random() % 64;
    identity.products.push_back(product);
  }
  return identity;
}

TEST(GemmIdentity, ComesBack) {
  for (int products = 0; products < 20; ++products) {
    const GemmIdentity identity = some_identity(static_cast<std::uint64_t>(products) + 1, products);
    EXPECT_EQ(decode_gemm_identity(encode(identity)), identity);
    EXPECT_EQ(encode(identity).find('\n'), std::string::npos);
  }
}

// The text contains all that bits depend on: identities that differ in a single field have different texts.
TEST(GemmIdentity, EveryFieldCounts) {
  const GemmIdentity identity = some_identity(3, 2);
  const std::string text = encode(identity);
  const auto expect_other = [&](const auto& change) {
    GemmIdentity other = identity;
    change(other);
    EXPECT_NE(encode(other), text);
    EXPECT_EQ(decode_gemm_identity(encode(other)), other);
  };
  expect_other([](GemmIdentity& of) { ++of.library_version; });
  expect_other([](GemmIdentity& of) { of.capability = 89; });
  expect_other([](GemmIdentity& of) { --of.processors; });
  expect_other([](GemmIdentity& of) { of.products.pop_back(); });
  expect_other([](GemmIdentity& of) { of.products[1].adds ^= true; });
  for (std::size_t word = 0; word < 8; ++word) expect_other([&](GemmIdentity& of) { of.products[0].algorithm[word] ^= 1; });
  for (std::int64_t ops::GemmSpec::* size : {&ops::GemmSpec::m, &ops::GemmSpec::n, &ops::GemmSpec::k, &ops::GemmSpec::lda,
                                             &ops::GemmSpec::ldb, &ops::GemmSpec::ldc, &ops::GemmSpec::ld_residual})
    expect_other([&](GemmIdentity& of) { ++(of.products[0].spec.*size); });
  expect_other([](GemmIdentity& of) { of.products[0].spec.has_bias ^= true; });
  expect_other([](GemmIdentity& of) { of.products[0].spec.has_residual ^= true; });
  expect_other([](GemmIdentity& of) { of.products[0].spec.transpose_a = ops::Transpose::yes; });
  expect_other([](GemmIdentity& of) { of.products[0].spec.transpose_b = ops::Transpose::no; });
  expect_other([](GemmIdentity& of) { of.products[1].spec.output = DType::bfloat16; });
}

// A text that was cut off or changed is refused, or is the text of another identity; it is never read as something that it does
// not say.
TEST(GemmIdentity, DamageIsRefused) {
  const std::string text = encode(some_identity(5, 3));
  const auto expect_refused_or_other = [](const std::string& damaged) {
    try {
      EXPECT_EQ(encode(decode_gemm_identity(damaged)), damaged);
    } catch (const InputError&) {
    }
  };
  for (std::size_t length = 0; length < text.size(); ++length) expect_refused_or_other(text.substr(0, length));
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (const char c : {'0', '9', 'f', ' ', ',', ':', '.', '-', '+', 'x', '\0'}) {
      std::string damaged = text;
      damaged[at] = c;
      expect_refused_or_other(damaged);
      expect_refused_or_other(text.substr(0, at) + c + text.substr(at));
    }
  }
  for (const char* none : {"", "host", "cublaslt-2 1 sm_90 132", "cublaslt-1 1 sm_90", "cublaslt-1 1 sm_90 132 ",
                           "cublaslt-1 01 sm_90 132", "cublaslt-1 99999999999999999999 sm_90 132"})
    EXPECT_THROW(decode_gemm_identity(none), InputError) << none;
}

TEST(GemmIdentity, SaysWhatDiffers) {
  const GemmIdentity pinned = some_identity(7, 4);
  GemmIdentity here = pinned;
  here.products.clear();
  EXPECT_EQ(difference(pinned, here), "");
  here.capability = 80, here.processors = 108;
  EXPECT_EQ(difference(pinned, here), "the compute capability was 90, now 80; multiprocessors were 132, now 108");
}

TEST(GemmIdentity, FindsTheProductThatAddsOrTheOneThatWrites) {
  GemmIdentity identity = some_identity(9, 1);
  identity.products.push_back(identity.products[0]);
  identity.products[1].adds ^= true;
  for (const PinnedProduct& product : identity.products) EXPECT_EQ(identity.find(product.spec, product.adds), &product);
  ops::GemmSpec other = identity.products[0].spec;
  ++other.m;
  EXPECT_EQ(identity.find(other, true), nullptr);
}

}  // namespace
}  // namespace spillway::cuda
