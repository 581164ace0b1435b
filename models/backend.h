// Who runs lists of kernel calls. Not here: the kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "memory/control_words.h"
#include "models/unit_code.h"

namespace spillway {

// Where the operands of one pass of one unit on one micro-batch lie. Addresses are multiples of 64 where their offsets are.
struct PassMemory {
  std::span<std::byte* const> values;         // in the order of Unit::forward or Unit::backward
  std::span<const std::byte* const> weights;  // one a Unit::blocks: [P] in the compute type; backward: null where looked up
  std::span<float* const> gradients;          // one a Unit::gradient_blocks: [P]; null: kept apart, of a lookup
  std::byte* workspace = nullptr;             // as many bytes as Unit says, contents undefined
  const std::byte* constants = nullptr;
  const std::int32_t* tokens = nullptr;   // [n]
  const std::int32_t* targets = nullptr;  // [n]
  MicroBatchWords* words = nullptr;
  float* logits = nullptr;        // [V]; null where nobody asks for them
  bool first_micro_batch = true;  // of a step: gradients are written, else added to

  std::byte* at(const Place& place) const;
};

class Backend {
 public:
  virtual ~Backend() = default;
  // Compiles the kernels of a model's lists, so that run() neither compiles nor allocates. An internal error where a kernel needs
  // more scratch than its call has.
  virtual void prepare(const CompiledModel& model) = 0;
  // On the CPU the work is complete when it returns. Runs of one backend never overlap.
  virtual void run(const CallList& list, const PassMemory& memory) = 0;
};

}  // namespace spillway
