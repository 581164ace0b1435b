#include "trainer/keep/merged_weights.h"

#include <algorithm>
#include <utility>

namespace spillway {

MergedWeights::MergedWeights(const UnitGraph& graph, const AdapterSpec& spec, BlockSource model, BlockSource adapter)
    : graph_(graph), scale_(spec.scale), model_(std::move(model)), adapter_(std::move(adapter)) {
  for (int block = 0; block < static_cast<int>(graph.blocks.size()); ++block) {
    if (!graph.blocks[block].of_adapter) continue;
    for (const TensorPiece& piece : graph.blocks[block].pieces) pieces_[piece.tensor].push_back({block, &piece});
  }
}

MergedWeights::Matrix MergedWeights::matrix_of(const std::string& tensor) const {
  const std::vector<PieceOf>& pieces = pieces_.at(tensor);
  const std::vector<std::int64_t>& shape = pieces.front().piece->file_shape;
  Matrix matrix{.columns = shape[1], .values = std::vector<float>(static_cast<std::size_t>(shape[0] * shape[1]))};
  std::vector<float> values;
  for (const PieceOf& of : pieces) {
    const TensorPiece& piece = *of.piece;
    values.resize(static_cast<std::size_t>(piece.elements()));
    adapter_(of.block, piece.begin, values);
    for (std::int64_t row = 0; row < piece.rows; ++row) {
      std::copy_n(values.begin() + row * piece.columns, piece.columns,
                  matrix.values.begin() + piece.file_row(row) * matrix.columns + piece.column_begin);
    }
  }
  return matrix;
}

void MergedWeights::add_row(std::int64_t out_row, std::int64_t in_column, std::span<float> to) {
  row_.assign(to.size(), 0);
  for (std::int64_t k = 0; k < b_.columns; ++k) {
    const float factor = b_.values[static_cast<std::size_t>(out_row * b_.columns + k)];
    const float* const a = a_.values.data() + k * a_.columns + in_column;
    for (std::size_t i = 0; i < to.size(); ++i) row_[i] += factor * a[i];
  }
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += scale_ * row_[i];
}

void MergedWeights::read(int block, std::int64_t begin, std::span<float> out) {
  model_(block, begin, out);
  const std::int64_t end = begin + static_cast<std::int64_t>(out.size());
  for (const TensorPiece& piece : graph_.blocks[block].pieces) {
    std::int64_t at = std::max(begin, piece.begin);
    const std::int64_t last = std::min(end, piece.begin + piece.elements());
    const std::string layer(layer_of_weight(piece.tensor));
    const std::string a = adapter_tensor(layer, Factor::a);
    if (at >= last || piece.columns == 1 || !pieces_.contains(a)) continue;
    if (layer != layer_) {
      a_ = matrix_of(a);
      b_ = matrix_of(adapter_tensor(layer, Factor::b));
      layer_ = layer;
    }
    while (at < last) {
      const std::int64_t inside = at - piece.begin, row = inside / piece.columns, column = inside % piece.columns;
      const std::int64_t count = std::min(piece.columns - column, last - at);
      add_row(piece.file_row(row), piece.column_begin + column,
              out.subspan(static_cast<std::size_t>(at - begin), static_cast<std::size_t>(count)));
      at += count;
    }
  }
}

}  // namespace spillway
