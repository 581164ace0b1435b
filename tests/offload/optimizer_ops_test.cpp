#include "offload/optimizer_ops.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tuple>

namespace spillway {
namespace {

// Arrays of a block, from element to element what an update takes.
struct BlockState {
  std::array<std::vector<std::byte>, kStateKinds> state;
  std::vector<float> gradient;

  BlockState(const ParameterBlock& block, StateForm form) : gradient(static_cast<std::size_t>(block.elements)) {
    std::mt19937 random(5);
    std::uniform_real_distribution<float> numbers(-1, 1);
    for (float& of : gradient) of = numbers(random);
    for (int kind = 0; kind < kStateKinds; ++kind)
      state[kind].resize(static_cast<std::size_t>(block.elements * bytes_per_element(form, static_cast<StateKind>(kind))));
    // Moments of zero, and any weights: halves of plain numbers.
    auto& weights = state[static_cast<int>(StateKind::weight)];
    for (std::size_t i = 0; i + 1 < weights.size(); i += 2) weights[i] = std::byte{0x80}, weights[i + 1] = std::byte{0x3c};
  }

  BoundOp from(const Op& op, StateForm form) {
    BoundOp bound;
    bound.op = &op;
    for (int kind = 0; kind < kStateKinds; ++kind)
      bound.state[kind] = state[kind].data() + op.element_begin * bytes_per_element(form, static_cast<StateKind>(kind));
    bound.gradient[0] = reinterpret_cast<std::byte*>(gradient.data() + op.element_begin);
    return bound;
  }
};

ParameterBlock block_of(std::initializer_list<std::array<std::int64_t, 2>> shapes, bool looked_up) {
  ParameterBlock block{.name = "block", .looked_up = looked_up};
  std::int64_t end = 0;
  for (const auto& [rows, columns] : shapes) {
    block.pieces.push_back({.rows = rows, .columns = columns, .begin = end});
    end = round_up(end + rows * columns, kPieceAlignment);
  }
  block.elements = round_up(end, kBlockElements);
  return block;
}

class SquareAndUpdate : public testing::TestWithParam<std::tuple<StateForm, std::int64_t>> {};

// Chunks of squares begin where pieces do, updates at any multiple of their own size: most chunks are cut by updates, and the
// other way round; here also rows that are longer than what is updated at a time.
TEST_P(SquareAndUpdate, LeavesWhatTwoPassesLeave) {
  const auto [form, cut] = GetParam();
  UnitGraph graph;
  graph.blocks = {block_of({{1, 70}, {300, 700}, {7, 1}, {1 << 16, 1}}, false), block_of({{130, 576}, {90, 640}}, true),
                  block_of({{9, 20'000}}, true), block_of({{100'000, 1}}, false)};
  for (ParameterBlock& block : graph.blocks) {
    for (TensorPiece& piece : block.pieces) piece.tensor_index = graph.tensors++;
  }
  OptimizerOps ops(graph, form, 2);
  const UpdateSettings settings{.step = 3, .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  const auto pieces = static_cast<std::size_t>(graph.first_pieces().back());
  std::vector<double> in_two(pieces, -1), in_one(pieces, -1);
  for (int index = 0; index < static_cast<int>(graph.blocks.size()); ++index) {
    const ParameterBlock& block = graph.blocks[index];
    BlockState two(block, form), one(block, form);
    Op whole;
    whole.block = index;
    whole.element_end = block.elements;
    EXPECT_TRUE(ops.finish_gradient(two.from(whole, form), in_two.data()));
    ops.update(two.from(whole, form), settings, {});
    for (std::int64_t begin = 0; begin < block.elements; begin += cut) {
      Op part = whole;
      part.element_begin = begin;
      part.element_end = std::min(begin + cut, block.elements);
      EXPECT_TRUE(ops.square_and_update(one.from(part, form), settings, in_one.data()));
    }
    EXPECT_EQ(one.state, two.state) << "block " << index;
  }
  EXPECT_EQ(std::memcmp(in_one.data(), in_two.data(), pieces * sizeof(double)), 0);
}

TEST_P(SquareAndUpdate, SaysThatAGradientIsNotFinite) {
  const auto [form, cut] = GetParam();
  UnitGraph graph;
  graph.blocks = {block_of({{1 << 16, 3}}, false)};
  graph.tensors = 1;
  OptimizerOps ops(graph, form, 2);
  BlockState state(graph.blocks[0], form);
  state.gradient[70'000] = std::numeric_limits<float>::infinity();
  double sum = 0;
  bool finite = true;
  for (std::int64_t begin = 0; begin < graph.blocks[0].elements; begin += cut) {
    Op part;
    part.block = 0;
    part.element_begin = begin;
    part.element_end = std::min(begin + cut, graph.blocks[0].elements);
    finite &= ops.square_and_update(state.from(part, form), {.step = 1, .epsilon = 1e-8}, &sum);
  }
  EXPECT_FALSE(finite);
}

INSTANTIATE_TEST_SUITE_P(Cuts, SquareAndUpdate,
                         testing::Combine(testing::Values(StateForm::exact, StateForm::fp32),
                                          testing::Values(std::int64_t{1} << 30, 64 << 10, 2048 * 7)),
                         [](const auto& of) {
                           return (std::get<0>(of.param) == StateForm::fp32 ? "Fp32By" : "ExactBy") +
                                  std::to_string(std::get<1>(of.param));
                         });

}  // namespace
}  // namespace spillway
