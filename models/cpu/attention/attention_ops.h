// Causal attention of many heads on the CPU: blocks of keys with an online softmax, so that memory grows with T, not T^2.
// Query heads share key/value heads in groups (Hq a multiple of Hkv); a window may bound how far back a query sees, and so may
// its document's beginning.
// The work is cut by shape alone and every sum has a fixed order: the bits never depend on the number of threads.
// Nothing here allocates: the caller provides `scratch` of the size that a *_scratch_bytes function gives.
// Not here: the projections around it (ops.h) and rotary positions.
//
// Legend: B sequences, Tq queries and Tk keys of a sequence, Hq / Hkv query / key-value heads, D head dimension.
//         `E` is the compute type: float or BFloat16. Matrices are row-major, a row a token, with strides in elements.
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory/base/bfloat16.h"
#include "memory/base/parallel.h"
#include "memory/base/types.h"
#include "models/kernel_shapes.h"

namespace spillway::ops {

// `instruction_set` is the best this machine has; `widened` computes bf16 in fp32, as machines without bf16 instructions do.
enum class AttentionPath : std::uint8_t { instruction_set, widened };

// Rows of a matrix that may be part of a wider one; sequence b begins at row b * Tq (queries) or b * Tk (keys, values).
template <typename E>
struct AttentionRows {
  E* data = nullptr;
  std::int64_t stride = 0;  // elements between rows
};

template <typename E>
struct AttentionInputs {
  AttentionRows<const E> q;                 // [B*Tq, Hq*D]
  AttentionRows<const E> k;                 // [B*Tk, Hkv*D]
  AttentionRows<const E> v;                 // [B*Tk, Hkv*D]
  const std::int32_t* first_key = nullptr;  // [B, Tq], first key of each query's document, never falling; null: one document
};

Bytes attention_forward_scratch_bytes(const AttentionShape& shape, DType type, int threads);
// `scratch` is aligned to 64 bytes, here and below; its contents are undefined before and after.
template <typename E>
void attention_forward(const ThreadPool& pool, const AttentionShape& shape, const AttentionInputs<E>& in,
                       AttentionRows<E> o /*[B*Tq, Hq*D]*/, float* lse /*[B, Hq, Tq]: log of the softmax's denominator*/,
                       std::byte* scratch, AttentionPath path = AttentionPath::instruction_set);

// For generation: one query in one sequence of one document. Reads each key and value once, without packing it. Sums run in
// another order than attention_forward's. lse [Hq] may be null.
Bytes attention_decode_scratch_bytes(const AttentionShape& shape);  // grows with the keys
template <typename E>
void attention_decode(const ThreadPool& pool, const AttentionShape& shape, const AttentionInputs<E>& in, E* o /*[Hq*D]*/,
                      float* lse, std::byte* scratch);

// In place: takes a score a head that has no value into the results of attention, and computes its gradient from what is then
// there (models/kernels.h, Sink).
template <typename E>
void sink_forward(const ThreadPool& pool, const AttentionShape& shape, const E* sinks /*[Hq]*/, float* lse /*[B,Hq,Tq]*/,
                  E* o /*[B*Tq,Hq*D]*/);
template <typename E>
void sink_backward(const ThreadPool& pool, const AttentionShape& shape, const E* sinks, const float* lse, const E* o,
                   const E* d_o /*[B*Tq,Hq*D]*/, float* dsinks /*[Hq]*/, Store store);

// The forward's results, and the gradient of its output.
template <typename E>
struct AttentionOutputs {
  AttentionRows<const E> o;    // [B*Tq, Hq*D]
  const float* lse = nullptr;  // [B, Hq, Tq]
  AttentionRows<const E> d_o;  // [B*Tq, Hq*D]
};

// The gradients are written, not added to. They may be parts of one matrix.
template <typename E>
struct AttentionGradients {
  AttentionRows<E> dq;  // [B*Tq, Hq*D]
  AttentionRows<E> dk;  // [B*Tk, Hkv*D]
  AttentionRows<E> dv;  // [B*Tk, Hkv*D]
};

Bytes attention_backward_scratch_bytes(const AttentionShape& shape, DType type, int threads);
template <typename E>
void attention_backward(const ThreadPool& pool, const AttentionShape& shape, const AttentionInputs<E>& in,
                        const AttentionOutputs<E>& out, const AttentionGradients<E>& gradients, std::byte* scratch,
                        AttentionPath path = AttentionPath::instruction_set);

}  // namespace spillway::ops
