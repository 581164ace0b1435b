#include "models/embedding.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

struct EmbeddingShape {
  std::int64_t hidden = 0;  // H
  ops::VocabularyTile tile;
  std::int64_t position_rows = -1;  // of the learned positions, which come after the last tile; -1: none
};

template <typename E>
class EmbeddingOps : public UnitOps {
 public:
  EmbeddingOps(const Compute& compute, const EmbeddingShape& shape) : compute_(compute), shape_(shape) {}

  void forward(const UnitCall& call) override {
    E* x = value_of<E>(call, 0);
    const E* weights = weights_of<E>(call, 0);
    if (call.lookup == LookupSource::block) {
      ops::embedding_forward(compute_.pool, compute_.rows, shape_.hidden, call.tokens, shape_.tile, weights, x);
    } else if (weights != nullptr) {
      std::copy_n(weights, compute_.rows * shape_.hidden, x);
    }
    if (shape_.position_rows >= 0) {
      ops::position_forward(compute_.pool, compute_.rows, shape_.hidden, compute_.sequence,
                            weights_of<E>(call, 1) + call.position * shape_.hidden, x);
    }
  }

  void backward(const UnitCall& call) override {
    const E* dx = value_of<E>(call, 0);
    if (gradient_of(call, 0) != nullptr) {
      ops::embedding_backward(compute_.pool, compute_.rows, shape_.hidden, call.tokens, shape_.tile, dx, gradient_of(call, 0),
                              store_of(call));
    }
    if (shape_.position_rows >= 0) {
      ops::position_backward(compute_.pool, compute_.rows, shape_.hidden, compute_.sequence, shape_.position_rows, dx,
                             gradient_of(call, 1), store_of(call));
    }
  }

 private:
  Compute compute_;
  EmbeddingShape shape_;
};

}  // namespace

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

Embedding add_embedding(ModelBuilder& builder, const std::string& output_name, const EmbeddingSpec& spec) {
  const Compute& compute = builder.compute();
  const std::int64_t H = spec.tokens.columns;
  Embedding embedding;
  embedding.blocks = add_vocabulary_blocks(builder, "embedding", spec.tokens);
  embedding.output = builder.add_stream_value(output_name, H);
  const std::vector<ops::VocabularyTile> tiles = vocabulary_tiles(spec.tokens.rows, builder.cuts());
  const double stream_bytes = static_cast<double>(compute.rows * H * size_of(compute.dtype));
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    const bool is_last = i + 1 == tiles.size();
    EmbeddingShape shape{H, tiles[i], -1};
    Unit unit;
    unit.name = fmt::format("embedding tile {}", i);
    unit.blocks = {embedding.blocks[i]};
    unit.lookup = {.first = tiles[i].first, .rows = tiles[i].rows, .row_elements = H};
    add_use(unit.forward, embedding.output.value, i == 0 ? Access::write : Access::update);
    add_use(unit.backward, embedding.output.gradient, Access::read);
    // A tile moves its share of the rows, and the backward touches its whole gradient.
    const double share = static_cast<double>(tiles[i].rows) / static_cast<double>(spec.tokens.rows);
    unit.forward_work.bytes = 2 * stream_bytes * share;
    unit.backward_work.bytes = stream_bytes * share + static_cast<double>(tiles[i].rows * H) * sizeof(float);
    if (is_last && spec.positions) {
      BlockLayout layout;
      layout.add(*spec.positions);
      unit.blocks.push_back(builder.add_block("positions", std::move(layout)));
      shape.position_rows = spec.positions->rows;
      unit.forward_work.bytes += 2 * stream_bytes;
      unit.backward_work.bytes += stream_bytes + static_cast<double>(spec.positions->rows * H) * sizeof(float);
    }
    unit.gradient_blocks = unit.blocks;
    auto ops = make_ops(compute.dtype, [&]<typename E>() -> std::unique_ptr<UnitOps> {
      return std::make_unique<EmbeddingOps<E>>(compute, shape);
    });
    builder.add_unit(std::move(unit), std::move(ops));
  }
  return embedding;
}

}  // namespace spillway
