// Words that a micro-batch's calls read and write at run time beside their operands: in the device's memory, one block for each
// micro-batch.
// Not here: who sets them (offload/operations.h).
#pragma once

#include <cstdint>

#include "memory/base/types.h"

namespace spillway {

struct MicroBatchWords {
  double loss_sum = 0;          // sum of the losses of its tokens, written by the unit that completes the loss
  float loss_scale = 1;         // 1 / counted tokens of the global batch, times fp16's scale where there is one
  std::int64_t position = 0;    // position of the first row in its sequence; not 0 only where keys and values are cached
  std::int64_t logits_row = 0;  // the row whose logits are wanted, in [0, n)
  std::uint64_t dropout = 0;    // the key of its masks; 0: nothing is dropped
};

inline constexpr Bytes kMicroBatchWordsBytes = sizeof(MicroBatchWords);
// Bytes of the words of so many micro-batches and of a double behind them. The loss counts as its writer, though nobody fills it:
// operations that must wait for the step's loss read it. The loss itself is in the step's control block (offload/step_control.h).
constexpr Bytes loss_bytes(std::int64_t micro_batches) {
  return micro_batches * kMicroBatchWordsBytes + static_cast<Bytes>(sizeof(double));
}

}  // namespace spillway
