// The squares of a looked-up block whose touched rows are kept apart are to the bit those of its whole gradient: rows of any
// length and place in a stretch, touched or not, of one token or of many.
//
// Legend: n rows (tokens) of a micro-batch, N of a step, V vocabulary, H elements of a row.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

#include "memory/bfloat16.h"
#include "offload/optimizer_ops.h"
#include "offload/row_ops.h"
#include "tests/memory/order.h"

namespace spillway {
namespace {

constexpr std::int64_t kTileRows = 150;  // V = 2 tiles of them
constexpr int kTokens = 24;              // n, in two micro-batches

UnitGraph graph_of(std::int64_t H, bool tied) {
  UnitGraph graph;
  graph.rows = kTokens;
  for (int tile = 0; tile < 2; ++tile) {
    const TensorPiece piece{.tensor_index = 0, .rows = kTileRows, .columns = H};
    graph.blocks.push_back(
        {.name = "tile", .pieces = {piece}, .elements = round_up(kTileRows * H, kBlockElements), .looked_up = true});
    Unit unit{.blocks = {tile}, .gradient_blocks = {tile}};
    unit.lookup = {.first = tile * kTileRows, .rows = kTileRows, .row_elements = H};
    graph.units.push_back(unit);
  }
  graph.tensors = 1;
  if (tied) graph.units.push_back({.blocks = {0, 1}, .gradient_blocks = {0, 1}});
  return graph;
}

using Case = std::tuple<std::int64_t, bool, StateForm>;
class RowSquares : public testing::TestWithParam<Case> {
 protected:
  RowSquares() : graph_(graph_of(H_, tied_)) {
    choices_.fetches_rows = true;
    choices_.micro_batches = 2;
    set_order(choices_, Order::vertical);
    choices_.form = form_;
    std::uniform_int_distribution<std::int32_t> tokens(0, 2 * kTileRows - 1);
    for (std::int32_t& token : tokens_) token = tokens(random_);
    // Neighbours, which share stretches; the same token again; the first and the last of a tile.
    tokens_[0] = 0, tokens_[1] = 1, tokens_[2] = kTileRows - 1, tokens_[3] = kTileRows, tokens_[4] = 2 * kTileRows - 1;
    tokens_[kTokens] = 1, tokens_[kTokens + 1] = 2;
    head_.resize(static_cast<std::size_t>(2 * kTileRows * H_));
    if (tied_) fill(head_);
    added_.resize(tokens_.size() * static_cast<std::size_t>(H_));
    fill(added_);
  }

  void fill(std::vector<float>& values) {
    std::lognormal_distribution<float> sizes(0, 2);
    for (float& value : values) value = random_() % 2 == 0 ? sizes(random_) : -sizes(random_);
  }
  std::size_t first_place(std::int32_t token) const {
    return static_cast<std::size_t>(std::ranges::find(tokens_, token) - tokens_.begin());
  }

  // By the gradient of all rows.
  std::vector<double> whole() const {
    std::vector<float> sum = head_;
    for (std::int32_t token = 0; token < 2 * kTileRows; ++token) {
      const std::size_t place = first_place(token);
      for (std::int64_t c = 0; place < tokens_.size() && c < H_; ++c)
        sum[static_cast<std::size_t>(token * H_ + c)] +=
            added_[place * static_cast<std::size_t>(H_) + static_cast<std::size_t>(c)];
    }
    OptimizerOps optimizer(graph_, form_, 1);
    std::vector<double> words(2 + kSquareNodesFromBegin);
    for (int tile = 0; tile < 2; ++tile) {
      std::vector<float> gradient(static_cast<std::size_t>(graph_.blocks[tile].elements),
                                  std::numeric_limits<float>::quiet_NaN());
      std::copy_n(sum.begin() + tile * kTileRows * H_, kTileRows * H_, gradient.begin());
      std::vector<BFloat16> rounded(gradient.size());
      const Op op = of_block(tile);
      BoundOperands operands;
      operands[Role::sum] = reinterpret_cast<std::byte*>(gradient.data());
      operands[Role::waiting] = reinterpret_cast<std::byte*>(rounded.data());
      const BoundOp bound{.op = &op, .touches = operands};
      EXPECT_TRUE(optimizer.finish_gradient(bound, words.data()));
    }
    return {words.begin(), words.begin() + 2};
  }

  // By what the head added, kept apart, and what the lookups did.
  std::vector<double> by_rows(int threads) {
    OptimizerOps optimizer(graph_, form_, threads);
    RowOps rows(graph_, choices_, optimizer);
    rows.note_tokens(0, tokens_);
    // What an operation finds there is what another left.
    const std::int64_t row_nodes = H_ / row_node(H_);
    std::vector<double> squares(static_cast<std::size_t>((tied_ ? 2 * kTileRows : 2 * kTokens) * row_nodes), -1),
        words(2 + kSquareNodesFromBegin, -1);
    std::vector<float> kept(added_.size()), sums = added_, waiting(added_.size());
    for (int tile = 0; tied_ && tile < 2; ++tile) {
      std::vector<float> gradient(head_.begin() + tile * kTileRows * H_, head_.begin() + (tile + 1) * kTileRows * H_);
      std::vector<BFloat16> rounded(gradient.size());
      const Op op = of_block(tile);
      BoundOperands operands;
      operands[Role::sum] = reinterpret_cast<std::byte*>(gradient.data());
      operands[Role::waiting] = reinterpret_cast<std::byte*>(rounded.data());
      operands[Role::head_gradients] = reinterpret_cast<std::byte*>(kept.data());
      operands[Role::row_squares] = reinterpret_cast<std::byte*>(squares.data() + tile * kTileRows * row_nodes);
      const BoundOp bound{.op = &op, .touches = operands};
      EXPECT_TRUE(rows.keep_apart(bound, 0));
    }
    const Op op = of_block(-1);
    BoundOperands operands;
    operands[Role::sum] = reinterpret_cast<std::byte*>(sums.data());
    operands[Role::head_gradients] = tied_ ? reinterpret_cast<std::byte*>(kept.data()) : nullptr;
    operands[Role::row_squares] = reinterpret_cast<std::byte*>(squares.data());
    operands[Role::touched_gradients] = reinterpret_cast<std::byte*>(waiting.data());
    const BoundOp bound{.op = &op, .touches = operands};
    EXPECT_TRUE(rows.finish_rows(bound, 0, words.data()));
    return {words.begin(), words.begin() + 2};
  }

  Op of_block(int block) const {
    Op op;
    op.block = block;
    return op;
  }

  const std::int64_t H_ = std::get<0>(GetParam());
  const bool tied_ = std::get<1>(GetParam());
  const StateForm form_ = std::get<2>(GetParam());
  const UnitGraph graph_;
  Choices choices_;
  std::mt19937 random_{21};
  std::vector<std::int32_t> tokens_ = std::vector<std::int32_t>(2 * kTokens);  // [N]
  std::vector<float> head_;   // [V,H]: what the head adds; zeros where it has an embedding of its own
  std::vector<float> added_;  // [N,H]: what the lookups add, each at its token's first place
};

TEST_P(RowSquares, AreThoseOfTheWholeGradient) {
  const std::vector<double> expected = whole();
  for (const int threads : {1, 2, 3, 4}) EXPECT_EQ(by_rows(threads), expected) << threads << " threads";
}

INSTANTIATE_TEST_SUITE_P(Rows, RowSquares,
                         testing::Combine(testing::Values(16, 48, 576, 896, 1024, 1600, 2560, 4096), testing::Bool(),
                                          testing::Values(StateForm::exact, StateForm::compact)));

}  // namespace
}  // namespace spillway
