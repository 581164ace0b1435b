// Activation functions between an MLP's matrix products.
#pragma once

#include <cstdint>

namespace spillway {

enum class Activation : std::uint8_t {
  silu,       // x · sigmoid(x); with a gate, SwiGLU
  gelu_tanh,  // gelu_new and gelu_pytorch_tanh
  gelu_erf,   // gelu, exact
  // A row has gates g and ups u in turns. The result is (1 + u') · g' · sigmoid(kSwigluAlpha · g'), where u' is u within
  // ±kSwigluLimit and g' the lesser of g and kSwigluLimit. Only experts have it.
  clamped_swiglu,
};

inline constexpr float kSwigluAlpha = 1.702f, kSwigluLimit = 7.0f;

}  // namespace spillway
