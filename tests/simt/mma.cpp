#include "tests/simt/mma.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace spillway::simt {
namespace {

// value = significand * 2^(exponent - fraction bits of its format); zero has the exponent of the smallest fp32.
struct Parts {
  std::int64_t significand = 0;
  int exponent = -126;
};

Parts parts_of(std::uint32_t bits, int fraction_bits, int exponent_bits) {
  const std::uint32_t fraction = bits & ((1u << fraction_bits) - 1);
  const int biased = static_cast<int>(bits >> fraction_bits & ((1u << exponent_bits) - 1)), bias = (1 << (exponent_bits - 1)) - 1;
  const bool negative = (bits >> (fraction_bits + exponent_bits) & 1) != 0;
  if (biased == 0 && fraction == 0) return {};
  const std::int64_t significand = biased == 0 ? fraction : fraction | 1u << fraction_bits;
  return {negative ? -significand : significand, std::max(biased, 1) - bias};
}

constexpr int fraction_bits_of(Half type) { return type == Half::bf16 ? 7 : 10; }
Parts parts_of(Half type, std::uint16_t bits) { return parts_of(bits, fraction_bits_of(type), 15 - fraction_bits_of(type)); }

bool is_special(Half type, std::uint16_t bits) {
  const std::uint16_t exponent = type == Half::bf16 ? 0x7f80 : 0x7c00;
  return (bits & exponent) == exponent;
}
double to_double(Half type, std::uint16_t bits) {
  if (is_special(type, bits)) {
    const bool nan = (bits & ((1u << fraction_bits_of(type)) - 1)) != 0;
    const double infinity = std::numeric_limits<double>::infinity();
    return nan ? std::numeric_limits<double>::quiet_NaN() : (bits >> 15) != 0 ? -infinity : infinity;
  }
  const Parts parts = parts_of(type, bits);
  return std::ldexp(static_cast<double>(parts.significand), parts.exponent - fraction_bits_of(type));
}

// sum * 2^exponent, truncated towards zero to what fp32 has.
float truncated(std::int64_t sum, int exponent) {
  const std::uint64_t size = sum < 0 ? -static_cast<std::uint64_t>(sum) : static_cast<std::uint64_t>(sum);
  const int width = std::bit_width(size);
  // The last bit that fp32 has: the 24th from the first, and none below 2^-149.
  const int cut = std::max(width - 24, -149 - exponent);
  const std::uint64_t kept = cut <= 0 ? size : cut >= 64 ? 0 : size >> cut << cut;
  const double value = std::ldexp(static_cast<double>(kept), exponent);
  return static_cast<float>(sum < 0 ? -value : value);
}

// Sums with NaNs or infinities are as in IEEE arithmetic.
float special(Half type, const Line& a, const Line& b, float c) {
  double sum = c;
  for (std::size_t i = 0; i < a.size(); ++i) sum += to_double(type, a[i]) * to_double(type, b[i]);
  return std::isnan(sum) ? std::bit_cast<float>(0x7fffffffu) : static_cast<float>(sum);
}

// A row of A or a column of B, taken apart once for all its products.
struct Taken {
  std::int32_t significand[kDepth];
  std::int32_t exponent[kDepth];
  bool is_finite = true;

  Taken(Half type, const Line& bits) {
    for (std::size_t i = 0; i < bits.size(); ++i) {
      const Parts parts = parts_of(type, bits[i]);
      significand[i] = static_cast<std::int32_t>(parts.significand), exponent[i] = parts.exponent;
      is_finite &= !is_special(type, bits[i]);
    }
  }
};

// Adds products [first, first + count) to `c`. Products have 22 bits at most, and stand at most 11 further left: 32 bits hold
// them.
float dot_add(int fraction_bits, Half type, const Taken& a, const Taken& b, int first, int count, float c) {
  const int left = fraction_bits - 2 * fraction_bits_of(type);
  const Parts added = parts_of(std::bit_cast<std::uint32_t>(c), 23, 8);
  std::int32_t product[kDepth], exponent[kDepth], largest = added.exponent;
  for (int i = 0; i < count; ++i) {
    product[i] = a.significand[first + i] * b.significand[first + i];
    exponent[i] = a.exponent[first + i] + b.exponent[first + i];
    largest = std::max(largest, exponent[i]);
  }
  const auto aligned = [&](std::int64_t x, int shift_left, int its_exponent) {
    const std::int64_t size = (x < 0 ? -x : x) << shift_left >> std::min(largest - its_exponent, 63);
    return x < 0 ? -size : size;
  };
  std::int64_t sum = aligned(added.significand, fraction_bits - 23, added.exponent);
  for (int i = 0; i < count; ++i) sum += aligned(product[i], left, exponent[i]);
  return truncated(sum, largest - fraction_bits);
}

}  // namespace

void multiply_add(Chip chip, Half type, std::span<const Line> rows, std::span<const Line> columns, float* c) {
  const std::vector<Taken> taken = [&] {
    std::vector<Taken> all;
    for (const Line& column : columns) all.emplace_back(type, column);
    return all;
  }();
  for (const Line& of_row : rows) {
    const Taken row(type, of_row);
    for (std::size_t j = 0; j < columns.size(); ++j) {
      float& d = *c++;
      if (!row.is_finite || !taken[j].is_finite || !std::isfinite(d)) {
        d = special(type, of_row, columns[j], d);
      } else if (chip == Chip::sm_80) {
        d = dot_add(24, type, row, taken[j], kDepth / 2, kDepth / 2, dot_add(24, type, row, taken[j], 0, kDepth / 2, d));
      } else {
        d = dot_add(25, type, row, taken[j], 0, kDepth, d);
      }
    }
  }
}

}  // namespace spillway::simt
