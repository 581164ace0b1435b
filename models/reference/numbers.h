// What the reference's loops read and write: numbers of any type as doubles, and activations with their slopes.
// Not here: the loops (reference_backend.cpp, reference_experts.cpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>

#include "memory/base/element.h"
#include "memory/base/types.h"
#include "models/activation.h"

namespace spillway {

// An array of numbers of a type known at run time, read and written as doubles.
class Numbers {
 public:
  Numbers(std::byte* data, DType type) : data_(data), type_(type) {}
  explicit operator bool() const { return data_ != nullptr; }
  double operator[](std::int64_t i) const { return element(data_, type_, i); }
  void set(std::int64_t i, double x) const { set_element(data_, type_, i, x); }
  void add(std::int64_t i, double x) const { set(i, (*this)[i] + x); }

 private:
  std::byte* data_;
  DType type_;
};

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct ValueAndSlope {
  double value, slope;
};
inline ValueAndSlope activate(Activation activation, double x) {
  switch (activation) {
    case Activation::silu: {
      const double s = sigmoid(x);
      return {x * s, s * (1 + x * (1 - s))};
    }
    case Activation::gelu_tanh: {
      const double a = std::sqrt(2 / std::numbers::pi), b = 0.044715, t = std::tanh(a * (x + b * x * x * x));
      return {0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * a * (1 + 3 * b * x * x)};
    }
    case Activation::gelu_erf: {
      const double cdf = 0.5 * (1 + std::erf(x / std::numbers::sqrt2));
      return {x * cdf, cdf + x * std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi)};
    }
    case Activation::clamped_swiglu: {
      const double g = std::min(x, static_cast<double>(kSwigluLimit)), s = sigmoid(static_cast<double>(kSwigluAlpha) * g);
      return {g * s, x > g ? 0 : s * (1 + static_cast<double>(kSwigluAlpha) * g * (1 - s))};
    }
  }
  return {};
}
// The other factor, by which a gate's value is multiplied.
inline ValueAndSlope factor_of(Activation activation, double up) {
  if (activation != Activation::clamped_swiglu) return {up, 1};
  const auto limit = static_cast<double>(kSwigluLimit);
  return {1 + std::clamp(up, -limit, limit), std::abs(up) > limit ? 0.0 : 1.0};
}

}  // namespace spillway
