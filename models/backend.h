// The interface of a backend, which runs lists of kernel calls. Not here: the kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "memory/plan/control_words.h"
#include "models/unit_code.h"

namespace spillway {

// Addresses of the operands of one pass of one unit on one micro-batch. An address is a multiple of 64 where its offset is.
struct PassMemory {
  std::span<std::byte* const> values;         // in the order of Unit::forward or Unit::backward
  std::span<const std::byte* const> weights;  // one per Unit::blocks: [P] in the compute type; null in a backward where looked up
  std::span<float* const> gradients;          // one per Unit::gradient_blocks: [P]; null: a lookup's, which is kept apart
  std::byte* workspace = nullptr;             // as many bytes as Unit says; contents undefined
  const std::byte* constants = nullptr;
  const std::int32_t* tokens = nullptr;     // [n]
  const std::int32_t* targets = nullptr;    // [n]
  const std::int32_t* documents = nullptr;  // [n]; null: the model is not of packs
  MicroBatchWords* words = nullptr;
  float* logits = nullptr;        // [V]; null where they are not asked for
  bool first_micro_batch = true;  // of the step: gradients are written; otherwise they are added to

  std::byte* at(const Place& place) const;
};

class Backend {
 public:
  virtual ~Backend() = default;
  // Compiles the kernels of a model's lists, so that run() neither compiles nor allocates. A kernel that needs more scratch than
  // its call has is an internal error.
  virtual void prepare(const CompiledModel& model) = 0;
  // On the CPU the work is complete when it returns. Runs of one backend never overlap.
  virtual void run(const CallList& list, const PassMemory& memory) = 0;
};

}  // namespace spillway
