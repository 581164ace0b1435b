#include "memory/base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace spillway {
namespace {

TEST(Float16, EveryNumberComesBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Float16 half{static_cast<std::uint16_t>(bits)};
    const float value = half.to_float();
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(Float16::from_float(value).to_float()));
    } else {
      ASSERT_EQ(Float16::from_float(value), half) << bits;
    }
  }
}

// A value halfway between neighbours rounds to the even one; a value a little beside that rounds to its nearest neighbour.
TEST(Float16, RoundsToTheNearestAndTiesToEven) {
  for (std::uint32_t bits = 0; bits + 1 < 0x7c00; ++bits) {
    const float below = Float16{static_cast<std::uint16_t>(bits)}.to_float(),
                above = Float16{static_cast<std::uint16_t>(bits + 1)}.to_float(), middle = below + (above - below) / 2;
    ASSERT_EQ(Float16::from_float(middle).bits, bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(Float16::from_float(std::nextafter(middle, 0.0f)).bits, bits);
    ASSERT_EQ(Float16::from_float(std::nextafter(middle, 1e9f)).bits, bits + 1);
    ASSERT_EQ(Float16::from_float(-middle).bits, 0x8000 | Float16::from_float(middle).bits);
  }
}

TEST(Float16, WhatIsTooLargeIsInfinite) {
  EXPECT_EQ(Float16::from_float(65519.99f).bits, 0x7bff);
  EXPECT_EQ(Float16::from_float(65520.0f).bits, 0x7c00);
  EXPECT_EQ(Float16::from_float(-std::numeric_limits<float>::infinity()).bits, 0xfc00);
  EXPECT_EQ(Float16::from_float(1e-9f).bits, 0);
}

TEST(Float16, WhatIsFiniteMayBeKeptSo) {
  for (const float value : {65519.99f, 65520.0f, 1e9f, 3e38f}) {
    EXPECT_EQ(finite_float16(value).to_float(), 65504.0f) << value;
    EXPECT_EQ(finite_float16(-value).to_float(), -65504.0f) << value;
  }
  for (const float value : {0.0f, -0.0f, 1.0f, 65504.0f, 1e-7f, std::numeric_limits<float>::infinity(), std::nanf("")})
    EXPECT_EQ(finite_float16(value), Float16::from_float(value)) << value;
}

}  // namespace
}  // namespace spillway
