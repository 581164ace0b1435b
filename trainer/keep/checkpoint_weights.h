// The weights of a checkpoint, read straight from its file: no executor, no plan, memory for one range.
// Not here: optimizer state (state_io.h), other layouts than the blocks' own (models/weights_io.h).
//
// Legend: P elements of a block.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "memory/plan.h"
#include "models/posix_file.h"
#include "models/safetensors.h"

namespace spillway {

class CheckpointWeights {
 public:
  // Reads all weights once, against their checksums. InputError where the file is of another model; IoError where it is damaged.
  CheckpointWeights(const std::string& checkpoint, const UnitGraph& graph);

  // Elements [begin, begin + out.size()) of a block, as the fp32 master; padding is whatever is there. At most kWeightsRange
  // elements at a time are sensible. IoError for a value that is not finite.
  void read_master(int block, std::int64_t begin, std::span<float> out) const;
  // The same of the weights that the run computed with: the master's high half where state is split, else the master.
  void read_computed(int block, std::int64_t begin, std::span<float> out) const;

 private:
  const StoredTensor& tensor(int block, StateKind kind) const;
  void refuse_what_is_not_finite(int block, std::int64_t begin, std::span<const float> values) const;

  std::string path_;
  const UnitGraph& graph_;
  SafetensorsReader reader_;
  PosixFile file_;
  bool split_ = false;
};

}  // namespace spillway
