// IEEE half precision as stored. Rounding is to nearest, ties to even; values that are too large become infinity.
// Not here: arithmetic (kernels compute in fp32).
#pragma once

#include <bit>
#include <cstdint>

namespace spillway {

struct Float16 {
  std::uint16_t bits;

  constexpr float to_float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16, exponent = bits >> 10 & 31u,
                        fraction = bits & 0x3ffu;
    if (exponent == 0) {  // below 2^-14: a multiple of 2^-24
      const float size = static_cast<float>(fraction) * 0x1p-24f;
      return sign == 0 ? size : -size;
    }
    const std::uint32_t wide = exponent == 31 ? 0x7f800000u : (exponent + 112) << 23;
    return std::bit_cast<float>(sign | wide | fraction << 13);
  }

  static constexpr Float16 from_float(float value) {
    const auto raw = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = raw >> 16 & 0x8000u, size = raw & 0x7fffffffu;
    const auto with_sign = [sign](std::uint32_t rest) { return Float16{static_cast<std::uint16_t>(sign | rest)}; };
    if (size > 0x7f800000u) return with_sign(0x7e00);   // a NaN stays one
    if (size >= 0x477ff000u) return with_sign(0x7c00);  // from 65520 on
    // Adding 0.5 rounds to a multiple of 2^-24, which is the last bit of a float from 0.5 on.
    if (size < 0x38800000u)
      return with_sign(std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5f) - std::bit_cast<std::uint32_t>(0.5f));
    return with_sign(((size + 0xfffu + (size >> 13 & 1u)) >> 13) - (112u << 10));
  }

  friend constexpr bool operator==(Float16, Float16) = default;  // of bits, not of values
};
static_assert(sizeof(Float16) == 2);

constexpr float to_float(Float16 value) { return value.to_float(); }

// The same rounding, but what is finite stays finite: it becomes at most 65504 in size.
constexpr Float16 finite_float16(float value) {
  const Float16 rounded = Float16::from_float(value);
  const bool was_finite = (std::bit_cast<std::uint32_t>(value) & 0x7f800000u) != 0x7f800000u;
  const bool is_infinite = (rounded.bits & 0x7fffu) == 0x7c00u;
  return was_finite && is_infinite ? Float16{static_cast<std::uint16_t>(rounded.bits - 1u)} : rounded;
}

}  // namespace spillway
