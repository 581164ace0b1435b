// The weights of a checkpoint, read straight from its file: no executor, no plan, memory for one range.
// Not here: optimizer state (state_io.h), other layouts than the blocks' own (models/weights_io.h).
//
// Legend: P elements of a block.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "files/posix_file.h"
#include "files/safetensors.h"
#include "memory/plan.h"

namespace spillway {

class CheckpointWeights {
 public:
  // As what computes in `wanted` has them: fp32 takes the masters; bf16 their high halves, where state is split, and only these
  // are read. Reads all of them once, against their checksums. InputError where the file is of another model; IoError where it
  // is damaged.
  CheckpointWeights(const std::string& checkpoint, const UnitGraph& graph, DType wanted);

  // Elements [begin, begin + out.size()) of a block; padding is whatever is there. At most kWeightsRange elements at a time are
  // sensible. IoError for a value that is not finite.
  void read(int block, std::int64_t begin, std::span<float> out) const;

 private:
  const StoredTensor& tensor(int block, StateKind kind) const;
  void refuse_what_is_not_finite(int block, std::int64_t begin, std::span<const float> values) const;

  std::string path_;
  const UnitGraph& graph_;
  SafetensorsReader reader_;
  PosixFile file_;
  bool is_split_ = false;
  bool takes_low_ = false;  // of the split masters
};

}  // namespace spillway
