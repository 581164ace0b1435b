// The LM head and the loss over the vocabulary in tiles. Nothing needs the whole logits: they are made in strips of rows, tile by
// tile, with an online log-sum-exp. HeadMode::tiled has one unit per tile, whose logits are a saved value like any other: a plan
// may keep them for the backward, or have it make them again. HeadMode::fused has one unit with all tiles resident. Both run the
// same products on the same strips and add in the same order, so that their bits agree. HeadMode::logits leaves the logits of one
// row and no loss. Not here: the final norm (norm_unit.h), what the kernels are (kernels.h).
//
// Legend: n rows of a micro-batch, S rows of a strip, H hidden, V vocabulary, R rows of a vocabulary tile.
#pragma once

#include <vector>

#include "models/model_builder.h"
#include "models/norm_unit.h"

namespace spillway {

struct HeadSpec {
  std::int64_t hidden = 0;      // H
  std::int64_t vocabulary = 0;  // V
  std::vector<int> blocks;      // [R,H] each, one per vocabulary tile
  float cap = 0;                // cap of the logits; 0: none
  float factor = 1;             // on the logits, before the cap
};
void add_head(ModelBuilder& builder, NormOutput input, HeadMode mode, const HeadSpec& spec);

}  // namespace spillway
