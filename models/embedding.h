// Token embedding, in tiles of vocabulary rows, a unit and a block each; with learned positions where a family has them.
// Not here: the head that may share the blocks (head.h).
//
// Legend: n rows of a micro-batch, H hidden, V vocabulary.
#pragma once

#include <optional>
#include <vector>

#include "models/model_builder.h"

namespace spillway {

struct EmbeddingSpec {
  FileTensor tokens;                    // [V,H]
  std::optional<FileTensor> positions;  // [max positions,H]
  float factor = 1;                     // multiplies the rows
  std::int64_t padding = -1;            // a token whose row gets no gradient; -1: none
};

struct Embedding {
  StreamValue output;       // [n,H]
  std::vector<int> blocks;  // one per tile; a tied head uses them again
};
Embedding add_embedding(ModelBuilder& builder, const std::string& output_name, const EmbeddingSpec& spec);

// The vocabulary's tiles according to the cuts, and a block for each tile.
std::vector<ops::VocabularyTile> vocabulary_tiles(std::int64_t vocabulary, const Cuts& cuts);
std::vector<int> add_vocabulary_blocks(ModelBuilder& builder, const std::string& name, const FileTensor& tensor);

}  // namespace spillway
