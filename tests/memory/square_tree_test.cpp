// However a block's squares are cut into parts, and in whichever order these are added, the bits are those of the plain recursion
// over the whole block.
#include "memory/plan/square_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <utility>
#include <vector>

#include "memory/base/error.h"

namespace spillway {
namespace {

// The sum of values [begin, begin + count) as the tree has it: halves of a power of two, zeros beyond the end.
double plain_sum(const std::vector<double>& values, std::int64_t begin, std::int64_t count) {
  if (begin >= std::ssize(values)) return 0;
  if (count == 1) return values[static_cast<std::size_t>(begin)];
  return plain_sum(values, begin, count / 2) + plain_sum(values, begin + count / 2, count / 2);
}
double plain_sum(const std::vector<double>& values) {
  return plain_sum(values, 0, static_cast<std::int64_t>(std::bit_ceil(values.size())));
}

// Squares of all sizes, so that another order of addition gives other bits; some are zeros.
std::vector<double> squares(std::int64_t count, std::mt19937& random) {
  std::vector<double> values(static_cast<std::size_t>(count));
  std::lognormal_distribution<double> sizes(0, 3);
  for (double& value : values) value = random() % 5 == 0 ? 0.0 : sizes(random);
  return values;
}

// The nodes of elements [begin, end), each with its sum.
std::vector<SquareNode> nodes_of(const std::vector<double>& values, std::int64_t begin, std::int64_t end, std::int64_t most) {
  const SquareCut cut(begin, end, most);
  std::vector<SquareNode> nodes;
  for (std::int64_t place = 0; place < cut.size(); ++place) {
    nodes.push_back(cut[place]);
    nodes.back().sum = plain_sum(values, nodes.back().begin / kSquareStretch, nodes.back().elements / kSquareStretch);
  }
  return nodes;
}

TEST(SquareTree, AnyCutInAnyOrderGivesTheBitsOfTheWhole) {
  std::mt19937 random(11);
  int others = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const auto count = static_cast<std::int64_t>(1 + random() % (trial % 4 == 0 ? 3000 : 70));
    const std::vector<double> values = squares(count, random);
    std::vector<std::int64_t> cuts = {0, count};
    for (auto pieces = random() % 12; pieces > 0; --pieces) cuts.push_back(static_cast<std::int64_t>(random() % count));
    std::ranges::sort(cuts);
    const std::int64_t most = random() % 2 == 0 ? SquareCut::kAnySize : kSquareStretch << random() % 8;
    std::vector<SquareNode> nodes;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      for (const SquareNode& node : nodes_of(values, cuts[i] * kSquareStretch, cuts[i + 1] * kSquareStretch, most))
        nodes.push_back(node);
    }
    std::ranges::shuffle(nodes, random);
    SquareTree tree;
    double in_turn = 0;
    for (const SquareNode& node : nodes) tree.add(node), in_turn += node.sum;
    ASSERT_EQ(tree.sum(), plain_sum(values)) << "trial " << trial << " of " << count;
    others += in_turn != plain_sum(values);
    // The tree keeps no more nodes of the whole than necessary.
    EXPECT_EQ(std::ssize(tree.nodes()), SquareCut(0, count * kSquareStretch).size());
  }
  EXPECT_GT(others, 100);  // else the test could not tell one order from another
}

// Parts as ranks and updates have them: each keeps the nodes of its own range, and another adds these up.
TEST(SquareTree, PartsAreTheNodesOfTheirRanges) {
  std::mt19937 random(12);
  for (int trial = 0; trial < 200; ++trial) {
    const auto count = static_cast<std::int64_t>(2 + random() % 500), elements = count * kSquareStretch;
    const std::vector<double> values = squares(count, random);
    const auto cut = static_cast<std::int64_t>(random() % count) * kSquareStretch;
    SquareTree whole;
    for (const auto& [begin, end] : {std::pair{cut, elements}, std::pair{std::int64_t{0}, cut}}) {
      SquareTree part;
      for (std::int64_t at = begin; at < end; at += kSquareStretch)
        part.add({.begin = at, .elements = kSquareStretch, .sum = values[static_cast<std::size_t>(at / kSquareStretch)]});
      const SquareCut expected(begin, end);
      ASSERT_EQ(std::ssize(part.nodes()), expected.size());
      EXPECT_LE(expected.size(), square_nodes_of_part(elements));
      if (begin == 0) {
        EXPECT_LE(expected.size(), kSquareNodesFromBegin);
      }
      std::vector<double> sums;  // the only numbers that must be kept
      for (std::int64_t place = 0; place < expected.size(); ++place) {
        const SquareNode& node = part.nodes()[static_cast<std::size_t>(place)];
        EXPECT_EQ(node.begin, expected[place].begin);
        EXPECT_EQ(node.elements, expected[place].elements);
        sums.push_back(node.sum);
      }
      whole.add(expected, sums.data());
    }
    EXPECT_EQ(whole.sum(), plain_sum(values));
  }
}

TEST(SquareTree, WhatNobodyGivesCountsAsZeros) {
  std::mt19937 random(13);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<double> values = squares(1 + static_cast<std::int64_t>(random() % 400), random);
    SquareTree tree;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (random() % 8 != 0) {
        values[i] = 0;
      } else {
        tree.add({.begin = static_cast<std::int64_t>(i) * kSquareStretch, .elements = kSquareStretch, .sum = values[i]});
      }
    }
    EXPECT_EQ(tree.sum(), plain_sum(values));
  }
  EXPECT_EQ(SquareTree().sum(), 0.0);
}

TEST(SquareTree, RefusesElementsTwice) {
  SquareTree tree;
  tree.add({.begin = 2048, .elements = 2048, .sum = 1});
  EXPECT_THROW(tree.add({.begin = 3072, .elements = 1024, .sum = 1}), Error);
  EXPECT_THROW(tree.add({.begin = 0, .elements = 4096, .sum = 1}), Error);
}

TEST(SquareCut, TakesTheLargestNodesThatThereAre) {
  const SquareCut cut(3 * 1024, 13 * 1024);
  ASSERT_EQ(cut.size(), 4);
  const std::int64_t expected[][2] = {{3, 1}, {4, 4}, {8, 4}, {12, 1}};
  for (std::int64_t place = 0; place < 4; ++place) {
    EXPECT_EQ(cut[place].begin, expected[place][0] * 1024);
    EXPECT_EQ(cut[place].elements, expected[place][1] * 1024);
  }
  // As many tasks as before, and one more at most where a part begins or ends within one.
  EXPECT_EQ(SquareCut(0, std::int64_t{1} << 30, kSquareTask).size(), 1 << 14);
  EXPECT_EQ(SquareCut(0, 0).size(), 0);
}

}  // namespace
}  // namespace spillway
