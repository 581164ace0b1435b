// Words that a micro-batch's calls read and write at run time beside their operands: in the device's memory, one block for each
// micro-batch.
// Not here: who sets them (offload/operations.h).
#pragma once

#include <cstdint>

#include "memory/base/types.h"

namespace spillway {

// How evenly the rows of a micro-batch are spread over a mixture's experts. 1 is an even load.
struct ExpertLoad {
  double most = 0;     // rows of the fullest expert of any layer, over the mean
  double least = 0;    // rows of the emptiest
  double entropy = 0;  // of the shares of a layer's experts, over that of even ones; the mean of all layers
};

struct MicroBatchWords {
  double loss_sum = 0;          // sum of the losses of its tokens, written by the unit that completes the loss
  float loss_scale = 1;         // 1 / counted tokens of the global batch, times fp16's scale where there is one
  std::int64_t position = 0;    // position of the first row in its sequence; not 0 only where keys and values are cached
  std::int64_t logits_row = 0;  // the row whose logits are wanted, in [0, n)
  std::uint64_t dropout = 0;    // the key of its masks; 0: nothing is dropped
  // Of mixtures of experts; the units that route write all but the first.
  float batch_share = 1;          // 1 / micro-batches of the global batch, times the same scale
  std::int32_t router_fault = 0;  // 1 + the first layer whose router met what is not a number; 0: none did
  double balance_loss = 0;        // of the routers of all layers, before its coefficient
  double router_z_loss = 0;       // likewise
  ExpertLoad expert_load;
};

inline constexpr Bytes kMicroBatchWordsBytes = sizeof(MicroBatchWords);
// Bytes of the words of so many micro-batches and of a double behind them. The loss counts as its writer, though nobody fills it:
// operations that must wait for the step's loss read it. The loss itself is in the step's control block (offload/step_control.h).
constexpr Bytes loss_bytes(std::int64_t micro_batches) {
  return micro_batches * kMicroBatchWordsBytes + static_cast<Bytes>(sizeof(double));
}

}  // namespace spillway
