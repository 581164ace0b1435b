// The mixture-of-experts half of a layer: norm, router, experts, residual. One block has the norm and the router, one block each
// group of experts. Either the layer is one unit, or, where memory lacks for that, each group is a unit and the sum of the
// experts' results passes through them. Both add experts in ascending order in the forward and in descending order in the
// backward, in fp32, so their bits are the same. Not here: how many experts a group has (Cuts), which form is taken
// (BuildOptions::experts), the kernels (kernels.h).
//
// Legend: n rows of a micro-batch, H hidden, E experts, k of them a row, I inner width of one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/activation.h"
#include "models/model_builder.h"
#include "models/norm_unit.h"
#include "models/routing.h"

namespace spillway {

// Rows of a tensor of the model file, or columns of one that the file has transposed.
struct FileRows {
  FileTensor tensor;
  std::int64_t begin = 0, count = 0;
};
FileRows whole(FileTensor tensor);

struct ExpertSpec {
  std::int64_t width = 0;                      // I
  std::vector<FileRows> up;                    // gate, then up: together [2I,H]
  FileRows down;                               // [H,I]
  std::optional<FileRows> up_bias, down_bias;  // [2I] and [H]; both or neither
};

struct ExpertsSpec {
  std::string name;                       // "layer 3": blocks are "layer 3 router" and "layer 3 experts 0 to 12"
  NormSpec norm;                          // over H
  FileTensor router;                      // [E,H]
  std::optional<FileTensor> router_bias;  // [E]; only without a shared expert
  std::vector<ExpertSpec> experts;
  // An expert of a width of its own to which every row goes, weighed by the sigmoid of its gate's product; both or neither.
  std::optional<ExpertSpec> shared;
  std::optional<FileTensor> shared_gate;  // [1,H]
  std::int64_t per_row = 0;               // k
  bool normalised = false;                // the weights of a row's experts are divided by their sum
  float factor = 1;                       // on what all experts add to the residual stream
  Activation activation = Activation::silu;
  std::int64_t layer = 0;
  RouterLosses losses;
  std::int64_t layers = 0;                 // that have experts …
  bool is_first = false, is_last = false;  // … and this one's place among them
  int totals = -1;                         // of all their routers: a value, double [2E+1]
};

// Elements of one expert.
std::int64_t expert_elements(const ModelConfig& config);

StreamValue add_experts(ModelBuilder& builder, StreamValue input, const std::string& output_name, const ExpertsSpec& spec);

}  // namespace spillway
