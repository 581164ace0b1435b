// Random operands, scratch memory and comparisons for the tests of the kernels. Not here: any kernel's reference.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "memory/base/bfloat16.h"
#include "memory/base/parallel.h"
#include "models/cpu/ops.h"

namespace spillway::testing {

template <typename E>
constexpr double epsilon_of() {
  return sizeof(E) == 2 ? 1.0 / 128 : 1.0 / 8388608;  // the distance from 1 to the next number
}

template <typename E>
std::vector<E> random_vector(std::int64_t count, std::uint32_t seed, float spread = 1.0f, float centre = 0.0f) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(centre, spread);
  std::vector<E> values(static_cast<std::size_t>(count));
  for (E& value : values) value = from_float<E>(normal(generator));
  return values;
}

template <typename E>
std::vector<double> widened(const std::vector<E>& values) {
  std::vector<double> wide;
  for (const E value : values) wide.push_back(static_cast<double>(to_float(value)));
  return wide;
}

// Memory aligned to 64 bytes and filled with garbage: a kernel may not count on what it finds.
class Scratch {
 public:
  explicit Scratch(Bytes bytes) : memory_(static_cast<std::size_t>(bytes) + 64, std::byte{0xa5}) {}
  std::byte* data() {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    return memory_.data() + (64 - address % 64) % 64;
  }

 private:
  std::vector<std::byte> memory_;
};

// |actual - expected| <= relative * |expected| + absolute, element by element; reports the worst.
template <typename E>
void expect_close(const std::vector<E>& actual, const std::vector<double>& expected, double relative, double absolute,
                  const char* what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double worst = 0.0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double error = std::abs(static_cast<double>(to_float(actual[i])) - expected[i]);
    const double share = error / (relative * std::abs(expected[i]) + absolute);
    if (!(share <= worst)) {
      worst = share;
      at = i;
    }
  }
  EXPECT_LE(worst, 1.0) << what << ": element " << at << " is " << (actual.empty() ? 0.0f : to_float(actual[at])) << ", expected "
                        << (expected.empty() ? 0.0 : expected[at]);
}

template <typename E>
void expect_same_bits(const std::vector<E>& actual, const std::vector<E>& expected, const char* what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  EXPECT_EQ(std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(E)), 0) << what << " depends on the threads";
}

// The pools that every kernel must agree on.
inline constexpr int kPools[] = {1, 2, 3};

template <typename E>
class KernelTest : public ::testing::Test {};
using ComputeTypes = ::testing::Types<float, BFloat16>;

}  // namespace spillway::testing
