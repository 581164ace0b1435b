// Attention on the device, forward and backward, by whichever kernels serve a call.
// Not here: the choice of kernels (attention.cu), the kernels (attention_forward.cuh, attention_backward.cuh,
// attention_plain.cuh).
//
// Legend: B sequences, Tq queries, Hq / Hkv query / key-value heads.
#pragma once

#include "models/cuda/gpu.cuh"
#include "models/kernel_shapes.h"

namespace spillway::cuda {

// Rows of the call's type, which may be part of a wider matrix.
struct AttentionRows {
  void* at = nullptr;
  std::int64_t stride = 0;  // elements
};

// All addresses are on the device.
struct AttentionArguments {
  DType type = DType::bfloat16;
  ops::AttentionShape shape;
  AttentionRows q, k, v, o;
  float* lse = nullptr;                     // [B, Hq, Tq], natural logarithms; forward: null if not wanted
  const std::int64_t* position = nullptr;   // if given, takes the place of shape.key_offset; keys end with the last query; B is 1
  const std::int32_t* first_key = nullptr;  // [B, Tq], first key of each query's document, never falling; null: one document
  // Backward alone:
  AttentionRows d_o, dq, dk, dv;
  float* delta = nullptr;  // [B, Hq, Tq], scratch
};

void attend(Queue& queue, const AttentionArguments& arguments);
void attend_backward(Queue& queue, const AttentionArguments& arguments);

}  // namespace spillway::cuda
