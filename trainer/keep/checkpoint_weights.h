// Reads the weights of a checkpoint straight from its file: no executor, no plan, memory for one range. Weights that are not
// trained are not there.
// Not here: optimizer state (state_io.h), layouts other than the blocks' own (models/weights_io.h).
//
// Legend: P elements of a block.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "files/posix_file.h"
#include "files/safetensors.h"
#include "memory/plan/plan.h"

namespace spillway {

class CheckpointWeights {
 public:
  // Gives the weights that a run in `wanted` computes with, or masters of them: bf16 takes the high halves of split masters, fp16
  // the weights of an fp16 run, and these are all that is read; else masters are. Reads all of them once to check their
  // checksums. Throws InputError if the file belongs to another model, IoError if it is damaged.
  CheckpointWeights(const std::string& checkpoint, const UnitGraph& graph, DType wanted);

  // Reads elements [begin, begin + out.size()) of a block; padding has arbitrary values. Reading more than kWeightsRange elements
  // at a time is not sensible. Throws IoError for a value that is not finite.
  void read(int block, std::int64_t begin, std::span<float> out) const;

 private:
  const StoredTensor& tensor(int block, StateKind kind) const;
  void refuse_what_is_not_finite(int block, std::int64_t begin, std::span<const float> values) const;

  std::string path_;
  const UnitGraph& graph_;
  SafetensorsReader reader_;
  PosixFile file_;
  StateForm form_ = StateForm::fp32;    // exact stands for compact, too: they have the same weights
  bool takes_low_ = false;              // reads the low halves of split masters, too
  StateKind kind_ = StateKind::weight;  // what is read
};

}  // namespace spillway
