// Attention, forward and backward, whatever kernels serve a call.
// Not here: which do (attention.cu), the kernels (attention_forward.cuh, attention_backward.cuh, attention_plain.cuh).
//
// Legend: B sequences, Tq queries, Hq / Hkv query / key-value heads.
#pragma once

#include "models/cuda/gpu.cuh"
#include "models/kernel_shapes.h"

namespace spillway::cuda {

// Rows that may be part of a wider matrix, of the call's type.
struct AttentionRows {
  void* at = nullptr;
  std::int64_t stride = 0;  // elements
};

// All addresses are the device's.
struct AttentionArguments {
  DType type = DType::bfloat16;
  ops::AttentionShape shape;
  AttentionRows q, k, v, o;
  float* lse = nullptr;                     // [B, Hq, Tq], natural logarithms; forward: null where nobody asks for them
  const std::int64_t* position = nullptr;   // where given: instead of shape.key_offset, and keys end with the last query; B is 1
  const std::int32_t* first_key = nullptr;  // [B, Tq], of each query's document, nowhere falling; null: all are of one
  // Backward alone:
  AttentionRows d_o, dq, dk, dv;
  float* delta = nullptr;  // [B, Hq, Tq], scratch
};

void attend(Queue& queue, const AttentionArguments& arguments);
void attend_backward(Queue& queue, const AttentionArguments& arguments);

}  // namespace spillway::cuda
