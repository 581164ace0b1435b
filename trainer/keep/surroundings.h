// What a wrapper's checkpoint has besides the text half that a run trains (models/wrapper.h): an export takes it from the files
// that the run began with, byte for byte, and writes the text half under the names that it has there.
// Not here: which tensors these are (models/weights_io.h).
#pragma once

#include <string>
#include <vector>

#include "models/weights_io.h"

namespace spillway {

class Surroundings {
 public:
  // Throws InputError if the model is no directory with weights any more, or if they are of another model than the graph.
  Surroundings(const std::string& model, const ModelConfig& config, const UnitGraph& graph);

  Bytes bytes() const;
  // Gives the text half's tensors the file's names, and adds the others.
  void complete(std::vector<TensorToWrite>& tensors) const;
  TensorSink renamed(const TensorSink& sink) const;  // of the text half's tensors; `sink` must outlive it
  void copy(const TensorSink& sink) const;           // gives the others

 private:
  SafetensorsReader reader_;
  std::vector<const StoredTensor*> others_;
};

}  // namespace spillway
