// Compiles a model's configuration to units: the graph that the planner reads and the kernel calls that a backend runs. Nothing
// is compiled for a processor, and nothing depends on this machine.
// Not here: what a family's units are (gpt2.h, llama.h), where their bytes live (memory/).
#pragma once

#include <cstdint>
#include <optional>

#include "memory/base/types.h"
#include "models/adapter.h"
#include "models/config.h"
#include "models/unit_code.h"
#include "models/unit_draft.h"

namespace spillway {

// How a layer's mixture of experts is cut into units. The forms give the same bits and have the same blocks.
enum class ExpertsForm : std::uint8_t {
  layer,   // one unit
  groups,  // a unit for each group of experts, where memory lacks for a layer's
};

struct BuildOptions {
  DType dtype = DType::bfloat16;
  std::int64_t micro_batch = 1;  // B, sequences
  std::int64_t sequence = 0;     // T, tokens of a sequence
  HeadMode head = HeadMode::tiled;
  ScratchBound scratch = {};  // bound for the machine that runs the model or is planned for; empty: 0
  // Above 0: attention keeps the keys and values of this many positions between calls (generation), and there is no backward.
  std::int64_t context = 0;
  // Above 0: a sequence is a pack of documents that do not see each other, and a token is in one of so many tokens on average:
  // the sum of the squares of their lengths over the sum of these. No bit depends on the number, only the work that is planned.
  double mean_document = 0;
  ExpertsForm experts = ExpertsForm::layer;
  std::optional<AdapterSpec> adapter = {};  // where there is one, the model's own blocks are frozen
};

// Cuts of a model. They follow from the model alone, so that no budget changes the bits; tests force small cuts.
struct Cuts {
  std::int64_t vocabulary_rows = 0;        // of an embedding or head tile; the last may have fewer
  std::int64_t mlp_columns = 0;            // of an MLP tile
  std::int64_t head_strip = 1024;          // rows of logits that exist at a time
  std::int64_t experts_a_group = 1 << 20;  // whose matrices are one block
};
Cuts canonical_cuts(const ModelConfig& config);

// Throws InputError if the sequence or the context is longer than the model's positions.
CompiledModel build_model(const ModelConfig& config, const BuildOptions& options);
CompiledModel build_model_with_cuts(const ModelConfig& config, const BuildOptions& options, const Cuts& cuts);

}  // namespace spillway
