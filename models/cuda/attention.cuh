// Attention, forward and backward: which kernel serves a call. This is the one list of them.
// Not here: the kernels (attention_forward.cuh, attention_backward.cuh, attention_plain.cuh).
//
// Legend: B sequences, Tq queries, Tk keys, Hq / Hkv query / key-value heads, D head dimension.
#pragma once

#include "models/cuda/attention_forward.cuh"

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

// Head sizes that kernels on tensor cores have.
template <typename F>
bool with_head_size(std::int64_t D, const F& f) {
  const auto is = [&]<int size>() {
    if (D == size) f.template operator()<size>();
    return D == size;
  };
  return is.template operator()<64>() || is.template operator()<80>() || is.template operator()<96>() ||
         is.template operator()<128>() || is.template operator()<256>();
}

template <typename T>
AttentionOperands<T> operands_of(const AttentionArguments& a) {
  const auto read = [](const AttentionRows& rows) { return Strided<const T>{static_cast<const T*>(rows.at), rows.stride}; };
  const auto written = [](const AttentionRows& rows) { return Strided<T>{static_cast<T*>(rows.at), rows.stride}; };
  return {.shape = a.shape,
          .q = read(a.q),
          .k = read(a.k),
          .v = read(a.v),
          .d_o = read(a.d_o),
          .o = written(a.o),
          .dq = written(a.dq),
          .dk = written(a.dk),
          .dv = written(a.dv),
          .lse = a.lse,
          .delta = a.delta,
          .position = a.position,
          .first_key = a.first_key};
}

inline void attend(Queue& queue, const AttentionArguments& a) {
  with_head_size(a.shape.head_dim, [&]<int D>() {
    using Kernel = AttendForward<BFloat16, D>;
    launch(queue, Kernel::grid(a.shape), Kernel{operands_of<BFloat16>(a)});
  });
}

}  // namespace spillway::cuda
