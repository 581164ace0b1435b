// Sums of squares of a block's fp32 gradient over nodes of its tree (memory/plan/square_tree.h), computed by the calling thread.
// A gradient that waits for its update in bf16 is rounded on the way, and the sums are those of the rounded gradient. Not here:
// who adds them up, and when (optimizer_ops.h); the kernel (models/cpu/ops.h).
#pragma once

#include <cstdint>
#include <limits>

#include "memory/base/bfloat16.h"
#include "memory/plan/square_tree.h"
#include "memory/plan/unit.h"

namespace spillway {

// The gradient that is squared, from its first element on; `rounded` is null where nothing is rounded.
struct SquaredGradient {
  const float* exact = nullptr;
  BFloat16* rounded = nullptr;
  SquaredGradient from(std::int64_t element) const { return {exact + element, rounded == nullptr ? nullptr : rounded + element}; }
};

// The sum of squares of a node of a block: whole stretches, at most kSquareTask elements. The gradient is given from the block's
// first element. Padding between pieces counts as zeros, whatever it holds.
double square_node(const ParameterBlock& block, const SquareNode& node, const SquaredGradient& gradient);

// True when Adam can take a gradient with this sum of squares: its v holds the squares in fp32.
inline bool is_finite_sum(double sum) { return sum <= std::numeric_limits<float>::max(); }

// The last trained block of the graph whose sum of squares, sum_of(block), is not finite; -1: there is none.
template <typename SumOf>
int last_block_not_finite(const UnitGraph& graph, const SumOf& sum_of) {
  int block = static_cast<int>(graph.blocks.size()) - 1;
  while (block >= 0 && (graph.blocks[static_cast<std::size_t>(block)].frozen || is_finite_sum(sum_of(block)))) --block;
  return block;
}

}  // namespace spillway
