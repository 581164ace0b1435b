// Activation functions between an MLP's matrix products.
#pragma once

#include <cstdint>

namespace spillway {

enum class Activation : std::uint8_t {
  silu,       // x · sigmoid(x); with a gate, SwiGLU
  gelu_tanh,  // gelu_new and gelu_pytorch_tanh
  gelu_erf,   // gelu, exact
};

}  // namespace spillway
