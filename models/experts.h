// The mixture-of-experts half of a layer, as plans see it: a router, then each expert as a unit of its own, which takes the rows
// that were routed to it a strip at a time, so that no budget depends on where rows go. The experts' partial sums are added in
// fp32, first expert to last in the forward and last to first in the backward.
// Not here: the computation. Experts are planned, but not yet trained (BuildOptions::purpose).
//
// Legend: n rows of a micro-batch, H hidden, E experts, k of them a row, I inner width of one, m = n * k / E rows of an expert.
#pragma once

#include <string>
#include <vector>

#include "models/model_builder.h"
#include "models/norm_unit.h"

namespace spillway {

struct ExpertSpec {
  std::vector<FileTensor> up_weights;  // [I,H] each: gate and up
  FileTensor down_weight;              // [H,I]
};

struct ExpertsSpec {
  std::string name;   // of the units, "layer 3": "layer 3 router", "layer 3 expert 7"
  NormSpec norm;      // over H
  FileTensor router;  // [E,H]
  std::vector<ExpertSpec> experts;
  std::int64_t experts_per_row = 0;  // k
};

StreamValue add_experts(ModelBuilder& builder, StreamValue input, const std::string& output_name, const ExpertsSpec& spec);

}  // namespace spillway
