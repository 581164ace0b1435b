#include "offload/optimizer_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <tuple>

#include "memory/base/bfloat16.h"
#include "offload/block_squares.h"

namespace spillway {
namespace {

// The arrays of a block, and the operands of an update of a range of its elements.
struct BlockState {
  std::array<std::vector<std::byte>, kStateKinds> state;
  std::vector<float> gradient;

  BlockState(const ParameterBlock& block, StateForm form) : gradient(static_cast<std::size_t>(block.elements)) {
    std::mt19937 random(5);
    std::uniform_real_distribution<float> numbers(-1, 1);
    for (float& of : gradient) of = numbers(random);
    for (const StateArray& array : state_of(block, form))
      state[static_cast<int>(array.kind)].resize(static_cast<std::size_t>(block.elements * array.each()));
    // Moments of zero, and any weights: halves of plain numbers.
    auto& weights = state[static_cast<int>(StateKind::weight)];
    for (std::size_t i = 0; i + 1 < weights.size(); i += 2) weights[i] = std::byte{0x80}, weights[i + 1] = std::byte{0x3c};
  }

  BoundOp from(const Op& op, StateForm form) {
    BoundOp bound;
    bound.op = &op;
    BoundOperands operands;
    for (const StateArray& array : trained_state(form)) {
      const auto kind = static_cast<std::size_t>(array.kind);
      operands.state[kind] = state[kind].data() + op.element_begin * array.each();
    }
    // The sum itself waits for the update.
    operands[Role::sum] = operands[Role::waiting] = reinterpret_cast<std::byte*>(gradient.data() + op.element_begin);
    bound.touches = operands;
    return bound;
  }
};

ParameterBlock block_of(std::initializer_list<std::array<std::int64_t, 2>> shapes) {
  ParameterBlock block{.name = "block"};
  std::int64_t end = 0;
  for (const auto& [rows, columns] : shapes) {
    block.pieces.push_back({.rows = rows, .columns = columns, .begin = end});
    end = round_up(end + rows * columns, kPieceAlignment);
  }
  block.elements = round_up(end, kBlockElements);
  return block;
}

// Blocks with pieces that end anywhere, and gaps between them.
UnitGraph graph_of_blocks() {
  UnitGraph graph;
  graph.blocks = {block_of({{1, 70}, {300, 700}, {7, 1}, {1 << 16, 1}}), block_of({{130, 576}, {90, 640}}),
                  block_of({{9, 20'000}}), block_of({{100'000, 1}})};
  for (ParameterBlock& block : graph.blocks) {
    for (TensorPiece& piece : block.pieces) piece.tensor_index = graph.tensors++;
  }
  return graph;
}

// The sum of squares of the pieces' elements, in long double; gaps do not count, whatever they hold.
double squares_by_pieces(const ParameterBlock& block, const std::vector<float>& gradient) {
  long double sum = 0;
  for (const TensorPiece& piece : block.pieces) {
    for (std::int64_t i = piece.begin; i < piece.begin + piece.elements(); ++i) {
      const long double value = gradient[static_cast<std::size_t>(i)];
      sum += value * value;
    }
  }
  return static_cast<double>(sum);
}

Op whole_of(const UnitGraph& graph, int block) {
  Op op;
  op.block = block;
  op.element_end = graph.blocks[static_cast<std::size_t>(block)].elements;
  return op;
}

std::size_t words_of(const UnitGraph& graph) {
  return static_cast<std::size_t>(norm_words(graph, {}).back()) + kSquareNodesFromBegin;
}

class SquareAndUpdate : public testing::TestWithParam<std::tuple<StateForm, std::int64_t>> {};

// Updates begin at any multiple of their own size, within nodes and pieces; here rows may also be longer than one update.
TEST_P(SquareAndUpdate, LeavesWhatTwoPassesLeave) {
  const auto [form, cut] = GetParam();
  const UnitGraph graph = graph_of_blocks();
  const AdamWSettings settings{.step = 3, .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  std::vector<double> by_one_thread;
  for (const int threads : {1, 2, 3, 4}) {
    OptimizerOps ops(graph, {.form = form}, threads);
    std::vector<double> in_two(words_of(graph), -1), in_one(in_two);
    for (int index = 0; index < static_cast<int>(graph.blocks.size()); ++index) {
      const ParameterBlock& block = graph.blocks[index];
      BlockState two(block, form), one(block, form);
      const Op whole = whole_of(graph, index);
      EXPECT_TRUE(ops.finish_gradient(two.from(whole, form), in_two.data()));
      ops.update(two.from(whole, form), settings);
      for (std::int64_t begin = 0; begin < block.elements; begin += cut) {
        Op part = whole;
        part.element_begin = begin;
        part.element_end = std::min(begin + cut, block.elements);
        EXPECT_TRUE(ops.square_and_update(one.from(part, form), settings, in_one.data()));
      }
      EXPECT_EQ(one.state, two.state) << "block " << index;
      EXPECT_EQ(in_one[index], in_two[index]) << "block " << index;
      EXPECT_NEAR(in_two[index] / squares_by_pieces(block, two.gradient), 1, 1e-13);
    }
    in_two.resize(graph.blocks.size());
    if (threads == 1) by_one_thread = in_two;
    EXPECT_EQ(in_two, by_one_thread) << threads << " threads";
    EXPECT_EQ(ops.norm(in_one.data()), ops.norm(in_two.data()));
  }
}

TEST_P(SquareAndUpdate, SaysThatAGradientIsNotFinite) {
  const auto [form, cut] = GetParam();
  UnitGraph graph;
  graph.blocks = {block_of({{1 << 16, 3}})};
  // Squares beyond fp32 are as bad: Adam would divide by an infinite v from then on.
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), 2e19f}) {
    OptimizerOps ops(graph, {.form = form}, 2);
    BlockState state(graph.blocks[0], form);
    state.gradient[70'000] = bad;
    std::vector<double> words(words_of(graph));
    EXPECT_FALSE(ops.finish_gradient(state.from(whole_of(graph, 0), form), words.data()));
    bool finite = true;
    for (std::int64_t begin = 0; begin < graph.blocks[0].elements; begin += cut) {
      Op part = whole_of(graph, 0);
      part.element_begin = begin;
      part.element_end = std::min(begin + cut, graph.blocks[0].elements);
      finite &= ops.square_and_update(state.from(part, form), {.step = 1, .epsilon = 1e-8}, words.data());
    }
    EXPECT_FALSE(finite) << bad;
  }
}

// An update ends where the part of a rank may end: no memory behind that end need exist.
TEST_P(SquareAndUpdate, ReadsNoMoreThanItsOwnElements) {
  const auto [form, cut] = GetParam();
  const UnitGraph graph = graph_of_blocks();
  OptimizerOps ops(graph, {.form = form}, 2);
  for (int index = 0; index < static_cast<int>(graph.blocks.size()); ++index) {
    BlockState whole(graph.blocks[index], form), parts(graph.blocks[index], form);
    std::vector<double> expected(words_of(graph)), words(expected);
    const Op op = whole_of(graph, index);
    ops.finish_gradient(whole.from(op, form), expected.data());
    const std::vector<float> gradient = parts.gradient;
    for (std::int64_t begin = 0; begin < op.element_end; begin += cut) {
      Op part = op;
      part.element_begin = begin;
      part.element_end = std::min(begin + cut, op.element_end);
      std::ranges::fill(parts.gradient, std::numeric_limits<float>::quiet_NaN());
      std::copy(gradient.begin() + part.element_begin, gradient.begin() + part.element_end,
                parts.gradient.begin() + part.element_begin);
      EXPECT_TRUE(ops.square_and_update(parts.from(part, form), {.step = 1, .epsilon = 1e-8}, words.data()));
    }
    EXPECT_EQ(words[static_cast<std::size_t>(index)], expected[static_cast<std::size_t>(index)]);
  }
}

// Each rank squares its part of a block and gives the nodes of that part, in any order of ranks: the sum is that of one rank.
TEST(FinishGradient, IsTheSumOfWhatRanksHave) {
  const UnitGraph graph = graph_of_blocks();
  OptimizerOps ops(graph, {.form = StateForm::exact}, 2);
  for (int index = 0; index < static_cast<int>(graph.blocks.size()); ++index) {
    const ParameterBlock& block = graph.blocks[index];
    BlockState state(block, StateForm::exact);
    std::vector<double> words(words_of(graph));
    const Op op = whole_of(graph, index);
    EXPECT_TRUE(ops.finish_gradient(state.from(op, StateForm::exact), words.data()));
    for (const int ranks : {2, 3, 8}) {
      const std::int64_t part = shard_elements(block.elements, {.ranks = ranks, .group = ranks, .stage = 1});
      SquareTree all;
      for (int rank = ranks - 1; rank >= 0; --rank) {
        SquareTree mine;
        const SquareCut cut(std::min(rank * part, block.elements), std::min((rank + 1) * part, block.elements), kSquareTask);
        for (std::int64_t place = 0; place < cut.size(); ++place) {
          SquareNode node = cut[place];
          node.sum = square_node(block, node, {.exact = state.gradient.data()});
          mine.add(node);
        }
        EXPECT_LE(std::ssize(mine.nodes()), square_nodes_of_part(block.elements));
        for (const SquareNode& node : mine.nodes()) all.add(node);
      }
      EXPECT_EQ(all.sum(), words[static_cast<std::size_t>(index)]) << ranks << " ranks";
    }
  }
}

// Padding between pieces may hold anything.
TEST(FinishGradient, CountsNoGap) {
  const UnitGraph graph = graph_of_blocks();
  for (const StateForm form : {StateForm::exact, StateForm::compact}) {
    OptimizerOps ops(graph, {.form = form}, 2);
    for (int index = 0; index < static_cast<int>(graph.blocks.size()); ++index) {
      const ParameterBlock& block = graph.blocks[index];
      BlockState state(block, form);
      std::vector<double> words(words_of(graph)), with_gaps(words);
      std::vector<BFloat16> rounded(state.gradient.size());
      const auto finish = [&](std::vector<double>& into) {
        const Op op = whole_of(graph, index);
        BoundOp bound = state.from(op, form);
        std::get<BoundOperands>(bound.touches)[Role::waiting] = reinterpret_cast<std::byte*>(rounded.data());
        EXPECT_TRUE(ops.finish_gradient(bound, into.data()));
      };
      finish(words);
      std::vector<char> has(state.gradient.size());
      for (const TensorPiece& piece : block.pieces) std::fill_n(has.begin() + piece.begin, piece.elements(), 1);
      for (std::size_t i = 0; i < has.size(); ++i) {
        if (!has[i]) state.gradient[i] = std::numeric_limits<float>::quiet_NaN();
        if (form == StateForm::compact && has[i]) {
          EXPECT_EQ(rounded[i], BFloat16::from_float(state.gradient[i]));
        }
      }
      finish(with_gaps);
      EXPECT_EQ(with_gaps, words);
      if (form == StateForm::exact) continue;
      for (std::size_t i = 0; i < has.size(); ++i) state.gradient[i] = has[i] ? rounded[i].to_float() : 0;
      EXPECT_NEAR(words[static_cast<std::size_t>(index)] / squares_by_pieces(block, state.gradient), 1, 1e-13);
    }
  }
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
