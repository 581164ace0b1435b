// What a unit computes. The executor calls these with views of memory that it placed; a unit never knows where bytes came from,
// allocates nothing and keeps nothing between calls.
// Not here: what a unit needs and costs (memory/unit.h), when it runs (offload/).
//
// Legend: n rows (tokens) of a micro-batch = B sequences x T tokens, P parameters of a block, V vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "memory/unit.h"

namespace spillway {

enum class GradientMode : std::uint8_t { write, accumulate };  // write: first micro-batch of a step
enum class ForwardPass : std::uint8_t { full, recompute };     // recompute: only Unit::saved is wanted; other outputs are null

// What a unit with a lookup is given in place of its first block's weights: rows is [n, row_elements], the rows of `tokens`, or
// null where the call of another unit copies them.
enum class LookupSource : std::uint8_t { block, rows };

// One call of one unit on one micro-batch. Pointers are 64-byte aligned.
struct UnitCall {
  std::span<std::byte* const> values;         // in the order of Unit::forward or Unit::backward
  std::span<const std::byte* const> weights;  // one a Unit::blocks: [P] in the graph's dtype; backward: null where looked up
  std::span<float* const> gradients;          // one a Unit::gradient_blocks: [P]; backward only; null: kept apart, of a lookup
  std::byte* workspace = nullptr;             // Unit::forward_workspace or ::backward_workspace bytes, contents undefined
  const std::int32_t* tokens = nullptr;       // [n]
  const std::int32_t* targets = nullptr;      // [n], -100 where there is no loss
  double* loss_sum = nullptr;  // sum of the losses of this micro-batch, written by the unit that completes the loss
  float loss_scale = 1.0f;     // 1 / counted tokens of the global batch, times fp16's scale where there is one
  GradientMode gradient_mode = GradientMode::write;
  std::int64_t position = 0;    // of the first row in its sequence; not 0 only where keys and values are cached
  float* logits = nullptr;      // [V]: where the head leaves the logits of one row; null where nobody asks for them
  std::int64_t logits_row = 0;  // that row, in [0, n)
  ForwardPass pass = ForwardPass::full;
  bool keeps_saved = true;      // false: where the unit has a saved_piece, its saved values are room for one
  LookupSource lookup = LookupSource::block;
};

// On the CPU the work is complete when a call returns. Calls of one object never run at the same time.
class UnitOps {
 public:
  virtual ~UnitOps() = default;
  virtual void forward(const UnitCall& call) = 0;
  virtual void backward(const UnitCall& call) = 0;
};

// A model compiled for one micro-batch shape: the description that the planner reads, and beside each unit its operation.
struct CompiledModel {
  UnitGraph graph;
  std::vector<std::unique_ptr<UnitOps>> ops;  // one a graph.units; null where units were compiled to be planned alone
};

// How the vocabulary is gone through; the two that give a loss give the same bits.
enum class HeadMode : std::uint8_t {
  tiled,   // a unit a vocabulary tile: logits of a tile are computed in the forward, and again in the backward unless they are
           // kept
  fused,   // one unit with all tiles resident: logits of a strip of rows are computed once; loss and gradient in the backward
  logits,  // a unit a vocabulary tile that only leaves the logits of UnitCall::logits_row: no loss, no backward
};

}  // namespace spillway
