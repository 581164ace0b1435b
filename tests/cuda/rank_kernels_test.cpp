// The kernels of ranks give the host's bits: sums over ranks, and sums of squares from the nodes of parts.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "collectives/rank_sum.h"
#include "memory/base/random.h"
#include "offload/cuda/part_squares.cuh"
#include "offload/cuda/rank_sum.cuh"
#include "tests/cuda/device.h"

namespace spillway {
namespace {

using device::Buffer;

// Numbers of many magnitudes, so that the order of addition is seen.
double number(std::uint64_t stream, std::int64_t i) {
  const std::uint32_t bits = random_bits(5, 0, stream, static_cast<std::uint64_t>(i));
  return std::ldexp(static_cast<double>(static_cast<std::int32_t>(bits)), static_cast<int>(bits % 40) - 50);
}

TEST(RankKernels, AddAlongTheTreeOfTheHost) {
  const ThreadPool pool(1);
  for (const int ranks : {1, 2, 3, 4, 5, 7, 8, 13, 100, 256}) {
    for (const std::int64_t elements : {4, 7, 1024}) {
      const std::int64_t stride = elements + elements % 4;  // not aligned for packs with 7
      Buffer<float> inputs(static_cast<std::size_t>(ranks * stride));
      std::vector<const float*> of;
      for (int rank = 0; rank < ranks; ++rank) {
        float* const row = inputs.data() + rank * stride;
        for (std::int64_t i = 0; i < elements; ++i) row[i] = static_cast<float>(number(static_cast<std::uint64_t>(rank), i));
        of.push_back(row);
      }
      std::vector<float> expected(static_cast<std::size_t>(elements));
      sum_over_ranks(of, elements, expected.data(), pool);
      const Buffer<float> sums(static_cast<std::size_t>(elements));
      device::Queue queue({.seed = 3});
      cuda::device_sum_over_ranks(queue, of, elements, sums.data());
      cuda::device_sum_over_ranks(queue, of, elements, inputs.data() + (ranks - 1) * stride);  // in the place of one
      queue.synchronize();
      for (std::int64_t i = 0; i < elements; ++i) {
        EXPECT_EQ(sums.data()[i], expected[static_cast<std::size_t>(i)]) << ranks << " ranks, element " << i;
        EXPECT_EQ(of.back()[i], expected[static_cast<std::size_t>(i)]) << ranks << " ranks, element " << i;
      }
    }
  }
}

TEST(RankKernels, MoreRanksThanALaunchNamesAreRefused) {
  const Buffer<float> sums(4);
  const std::vector<const float*> of(257, sums.data());
  device::Queue queue;
  EXPECT_THROW(cuda::device_sum_over_ranks(queue, of, 4, sums.data()), Error);
}

// Every part of a block of so many stretches, cut anywhere.
TEST(RankKernels, JoinTheNodesOfAPart) {
  constexpr std::int64_t stretches = 1500;
  Buffer<double> of_stretches(stretches);
  for (std::int64_t i = 0; i < stretches; ++i) of_stretches.data()[i] = std::abs(number(9, i));
  for (const auto& [begin, end] : std::initializer_list<std::pair<std::int64_t, std::int64_t>>{
           {0, 1}, {0, 1024}, {0, 1500}, {2, 1500}, {374, 750}, {1024, 1500}, {512, 1024}, {1498, 1500}}) {
    const SquareCut cut(begin * kSquareStretch, end * kSquareStretch);
    const Buffer<double> nodes(static_cast<std::size_t>(cut.size()));
    device::Queue queue({.seed = 4});
    launch(queue, {cut.size(), cuda::JoinPart::kThreads * static_cast<std::int64_t>(sizeof(double))},
           cuda::JoinPart{begin, end, of_stretches.data() + begin, nodes.data()});
    queue.synchronize();
    SquareTree tree;
    for (std::int64_t i = begin; i < end; ++i)
      tree.add({.begin = i * kSquareStretch, .elements = kSquareStretch, .sum = of_stretches.data()[i]});
    ASSERT_EQ(std::ssize(tree.nodes()), cut.size());
    for (std::int64_t place = 0; place < cut.size(); ++place)
      EXPECT_EQ(nodes.data()[place], tree.nodes()[static_cast<std::size_t>(place)].sum) << begin << " to " << end;
  }
}

TEST(RankKernels, AddTheWordsOfABlock) {
  // (a + b) + (c + d), and one word as it is; a block without steps has 0.
  const std::vector<cuda::SumStep> steps = {{0, 0}, {1, 1}, {2, 0}, {3, 2}, {4, 0}};
  const std::vector<std::int32_t> begins = {0, 4, 4, 5};
  const std::vector<double> words = {1e16, 1.0, -1e16, 3.0, 0.25};
  const Buffer<cuda::SumStep> device_steps{std::span<const cuda::SumStep>(steps)};
  const Buffer<std::int32_t> device_begins{std::span<const std::int32_t>(begins)};
  const Buffer<double> device_words{std::span<const double>(words)}, stacks(3 * 4), sums(3);
  device::Queue queue;
  launch(queue, {1},
         cuda::SumOfWords{3, 4, device_begins.data(), device_steps.data(), device_words.data(), stacks.data(), sums.data()});
  queue.synchronize();
  EXPECT_EQ(sums.data()[0], (words[0] + words[1]) + (words[2] + words[3]));
  EXPECT_EQ(sums.data()[1], 0);
  EXPECT_EQ(sums.data()[2], 0.25);
}

}  // namespace
}  // namespace spillway
