// Sums of squares of a block's fp32 gradient over nodes of its tree (memory/square_tree.h), by the calling thread. Where the
// gradient waits for its update in bf16, it is rounded on the way, and the sums are those of its rounding.
// Not here: who adds them up, and when (optimizer_ops.h); the kernel (models/cpu/ops.h).
#pragma once

#include <cstdint>
#include <limits>

#include "memory/bfloat16.h"
#include "memory/square_tree.h"
#include "memory/unit.h"

namespace spillway {

// Of what is added up: from its first element on; `rounded` is null where nothing is rounded.
struct SquaredGradient {
  const float* exact = nullptr;
  BFloat16* rounded = nullptr;
  SquaredGradient from(std::int64_t element) const { return {exact + element, rounded == nullptr ? nullptr : rounded + element}; }
};

// sums[i] of the i-th `node` elements, kSquareTask at most, of which `elements` are a multiple.
void square_nodes(std::int64_t elements, std::int64_t node, const SquaredGradient& gradient, double* sums);

// The sum of a node of a block, whole stretches and up to kSquareTask. The gradient is given from the block's first element. What
// lies between pieces counts as zeros, whatever it holds.
double square_node(const ParameterBlock& block, const SquareNode& node, const SquaredGradient& gradient);

// Whether Adam can take such a gradient: its v holds the squares in fp32.
inline bool is_finite_sum(double sum) { return sum <= std::numeric_limits<float>::max(); }

}  // namespace spillway
