#include "models/embedding.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace spillway {

std::vector<ops::VocabularyTile> vocabulary_tiles(std::int64_t vocabulary, const Cuts& cuts) {
  std::vector<ops::VocabularyTile> tiles;
  for (std::int64_t first = 0; first < vocabulary; first += cuts.vocabulary_rows) {
    tiles.push_back({first, std::min(cuts.vocabulary_rows, vocabulary - first)});
  }
  return tiles;
}

std::vector<int> add_vocabulary_blocks(ModelBuilder& builder, const std::string& name, const FileTensor& tensor) {
  std::vector<int> blocks;
  for (const ops::VocabularyTile& tile : vocabulary_tiles(tensor.rows, builder.cuts())) {
    BlockLayout layout;
    layout.add_rows(tensor, tile.first, tile.rows);
    blocks.push_back(builder.add_block(fmt::format("{} tile {}", name, blocks.size()), std::move(layout)));
  }
  return blocks;
}

namespace {

// Adds learned positions to a unit that looks up: they are its second block, and are added to its rows.
void add_positions(ModelBuilder& builder, const FileTensor& positions, const Place& x, const Place& dx, UnitDraft& draft) {
  const Compute& compute = builder.compute();
  const std::int64_t n = compute.rows, H = positions.columns;
  BlockLayout layout;
  layout.add(positions);
  draft.unit.blocks.push_back(builder.add_block("positions", std::move(layout)));
  const kernels::AddPositions add{.type = compute.dtype,
                                  .rows = n,
                                  .hidden = H,
                                  .sequence = compute.sequence,
                                  .table = weight_place(compute, 1, 0).moving_with(ControlWord::position, H * compute.element()),
                                  .x = x,
                                  .first_key = compute.first_key()};
  draft.forward.add(add);
  draft.backward.add(kernels::AddPositionsBackward{.type = compute.dtype,
                                                   .rows = n,
                                                   .hidden = H,
                                                   .sequence = compute.sequence,
                                                   .table_rows = positions.rows,
                                                   .dx = dx,
                                                   .dtable = gradient_place(compute, 1, 0),
                                                   .first_key = compute.first_key()});
}

}  // namespace

Embedding add_embedding(ModelBuilder& builder, const std::string& output_name, const EmbeddingSpec& spec) {
  const Compute& compute = builder.compute();
  const std::int64_t n = compute.rows, H = spec.tokens.columns, V = spec.tokens.rows;
  Embedding embedding;
  embedding.blocks = add_vocabulary_blocks(builder, "embedding", spec.tokens);
  embedding.output = builder.add_stream_value(output_name, H);
  const std::vector<ops::VocabularyTile> tiles = vocabulary_tiles(V, builder.cuts());
  const Place x = value_place(embedding.output.value), dx = value_place(embedding.output.gradient);
  const Place tokens{.space = Space::tokens};
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    UnitDraft draft;
    Unit& unit = draft.unit;
    unit.name = fmt::format("embedding tile {}", i);
    unit.blocks = {embedding.blocks[i]};
    unit.looks_up = true;
    const Place table = weight_place(compute, 0, 0);
    draft.forward.add(kernels::LookUp{.type = compute.dtype,
                                      .rows = n,
                                      .hidden = H,
                                      .vocabulary = V,
                                      .tile = tiles[i],
                                      .factor = spec.factor,
                                      .tokens = tokens,
                                      .table = table,
                                      .x = x});
    draft.backward.add(kernels::LookUpBackward{.type = compute.dtype,
                                               .rows = n,
                                               .hidden = H,
                                               .vocabulary = V,
                                               .tile = tiles[i],
                                               .factor = spec.factor,
                                               .padding = spec.padding,
                                               .tokens = tokens,
                                               .dx = dx,
                                               .dtable = gradient_place(compute, 0, 0)});
    if (i + 1 == tiles.size() && spec.positions) add_positions(builder, *spec.positions, x, dx, draft);
    unit.gradient_blocks = unit.blocks;
    builder.add_unit(std::move(draft));
  }
  return embedding;
}

}  // namespace spillway
