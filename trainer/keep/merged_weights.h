// The weights of a model with its adapter added to them: W + scale B A, summed in fp32. In bounded memory: the factors of one
// layer at a time. Not here: where they are written (export.h).
//
// Legend: r rank.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "memory/plan/unit.h"
#include "models/adapter.h"
#include "models/weights_io.h"

namespace spillway {

class MergedWeights {
 public:
  // The graph must outlive this. `model` and `adapter` give the weights of the one's blocks and of the other's.
  MergedWeights(const UnitGraph& graph, const AdapterSpec& spec, BlockSource model, BlockSource adapter);

  // Reads elements [begin, begin + out.size()) of a block of the model.
  void read(int block, std::int64_t begin, std::span<float> out);

 private:
  struct Matrix {
    std::int64_t columns = 0;
    std::vector<float> values;  // row-major
  };
  struct PieceOf {
    int block = -1;
    const TensorPiece* piece = nullptr;
  };
  Matrix matrix_of(const std::string& tensor) const;
  // Adds the product of B's row `out_row` and A's columns from `in_column` on.
  void add_row(std::int64_t out_row, std::int64_t in_column, std::span<float> to);

  const UnitGraph& graph_;
  const float scale_;
  const BlockSource model_, adapter_;
  std::map<std::string, std::vector<PieceOf>> pieces_;  // of the adapter's tensors
  std::string layer_;                                   // whose factors are at hand
  Matrix a_, b_;                                        // [r,in], [out,r]
  std::vector<float> row_;
};

}  // namespace spillway
