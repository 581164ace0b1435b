// bfloat16 as stored: the high half of a float. Rounding is to nearest, ties to even.
// Not here: arithmetic (kernels compute in fp32) and vector conversions (models/cpu/simd-inl.h).
#pragma once

#include <bit>
#include <cstdint>

namespace spillway {

struct BFloat16 {
  std::uint16_t bits;

  constexpr float to_float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

  static constexpr BFloat16 from_float(float value) {
    const auto raw = std::bit_cast<std::uint32_t>(value);
    // A NaN stays one: rounding could carry its mantissa into infinity.
    if ((raw & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((raw >> 16) | 0x40u)};
    return {static_cast<std::uint16_t>((raw + 0x7fffu + ((raw >> 16) & 1u)) >> 16)};
  }

  friend constexpr bool operator==(BFloat16, BFloat16) = default;  // of bits, not of values
};
static_assert(sizeof(BFloat16) == 2);

constexpr float to_float(float value) { return value; }
constexpr float to_float(BFloat16 value) { return value.to_float(); }
template <typename T>
constexpr T from_float(float value) {
  if constexpr (sizeof(T) == 4) {
    return value;
  } else {
    return T::from_float(value);
  }
}

}  // namespace spillway
