// The device's optimizer and sums of squares give the host's bits, whatever the cut, the alignment and the order of blocks.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "memory/base/random.h"
#include "models/cpu/ops.h"
#include "offload/block_squares.h"
#include "offload/cuda/adamw.cuh"
#include "offload/cuda/squares.cuh"
#include "offload/host_adamw.h"
#include "tests/cuda/device.h"

namespace spillway {
namespace {

using device::Buffer;

float uniform(std::uint64_t stream, std::int64_t i) {  // in [-1, 1)
  return static_cast<float>(static_cast<std::int32_t>(random_bits(5, 0, stream, static_cast<std::uint64_t>(i)))) * 0x1p-31f;
}

constexpr std::int64_t kElements = 3000;

template <typename T>
Buffer<T> numbers(std::uint64_t stream, float (*f)(float) = [](float x) { return x; }) {
  Buffer<T> buffer(kElements);
  for (std::int64_t i = 0; i < kElements; ++i) buffer.data()[i] = from_float<T>(f(uniform(stream, i)));
  // Values that any state may come to have.
  buffer.data()[7] = from_float<T>(0.0f), buffer.data()[8] = from_float<T>(1e-40f);
  return buffer;
}
float squared(float x) { return x * x; }

template <typename T>
void expect_same(const T* device, const T* host, std::int64_t count, const char* what) {
  for (std::int64_t i = 0; i < count; ++i)
    ASSERT_EQ(std::memcmp(device + i, host + i, sizeof(T)), 0) << what << ", element " << i;
}

constexpr AdamWSettings settings_of(std::int64_t step) {
  return {.step = step, .lr = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1, .gradient_scale = 0.37, .seed = 11};
}
// Runs that are whole, cut anywhere, and across the border of a random key.
constexpr AdamWRun kRuns[] = {{.block = 3, .begin = 0, .count = kElements},
                              {.block = 1, .begin = 64 * 1024 - 8, .count = 2048},
                              {.block = 1, .begin = 5, .count = 1001, .decay = Decay::none},
                              {.block = 0, .begin = 8, .count = 1}};

template <typename Moment, typename Gradient>
void check_split() {
  for (const AdamWRun& run : kRuns) {
    for (const std::int64_t offset : {0, 1}) {  // offset of all arrays; at 1 vectors do not fit
      if (run.count + offset > kElements) continue;
      const auto high = numbers<BFloat16>(1), high_host = numbers<BFloat16>(1);
      const auto m = numbers<Moment>(2), m_host = numbers<Moment>(2), v = numbers<Moment>(3, squared),
                 v_host = numbers<Moment>(3, squared);
      const auto gradient = numbers<Gradient>(4);
      Buffer<std::int16_t> low(kElements), low_host(kElements);
      for (std::int64_t i = 0; i < kElements; ++i)
        low.data()[i] = low_host.data()[i] = static_cast<std::int16_t>(random_bits(1, 1, 1, static_cast<std::uint64_t>(i)));
      device::Queue queue({.seed = static_cast<std::uint64_t>(run.count)});
      for (std::int64_t step = 1; step <= 3; ++step) {
        const SplitState<Moment> device{high.data() + offset, low.data() + offset, m.data() + offset, v.data() + offset},
            host{high_host.data() + offset, low_host.data() + offset, m_host.data() + offset, v_host.data() + offset};
        cuda::device_adamw(queue, settings_of(step), run, device, gradient.data() + offset);
        host_adamw(settings_of(step), run, source_of(host), gradient.data() + offset, host);
      }
      queue.synchronize();
      expect_same(high.data(), high_host.data(), kElements, "high");
      expect_same(low.data(), low_host.data(), kElements, "low");
      expect_same(m.data(), m_host.data(), kElements, "m");
      expect_same(v.data(), v_host.data(), kElements, "v");
    }
  }
}

TEST(DeviceAdamW, ExactState) { check_split<float, float>(); }
TEST(DeviceAdamW, ExactStateWithRoundedGradients) { check_split<float, BFloat16>(); }
TEST(DeviceAdamW, CompactState) { check_split<BFloat16, BFloat16>(); }

TEST(DeviceAdamW, Fp32State) {
  for (const AdamWRun& run : kRuns) {
    const auto weight = numbers<float>(1), weight_host = numbers<float>(1), m = numbers<float>(2), m_host = numbers<float>(2),
               v = numbers<float>(3, squared), v_host = numbers<float>(3, squared), gradient = numbers<float>(4);
    device::Queue queue;
    const Fp32State device{weight.data(), m.data(), v.data()}, host{weight_host.data(), m_host.data(), v_host.data()};
    cuda::device_adamw(queue, settings_of(2), run, device, gradient.data());
    host_adamw(settings_of(2), run, source_of(host), gradient.data(), host);
    queue.synchronize();
    expect_same(weight.data(), weight_host.data(), kElements, "weight");
    expect_same(m.data(), m_host.data(), kElements, "m");
    expect_same(v.data(), v_host.data(), kElements, "v");
  }
}

TEST(DeviceAdamW, Fp16State) {
  for (const AdamWRun& run : kRuns) {
    for (const std::int64_t offset : {0, 1}) {
      if (run.count + offset > kElements) continue;
      const auto weight = numbers<Float16>(5), weight_host = numbers<Float16>(5);
      const auto master = numbers<float>(1), master_host = numbers<float>(1), m = numbers<float>(2), m_host = numbers<float>(2),
                 v = numbers<float>(3, squared), v_host = numbers<float>(3, squared), gradient = numbers<float>(4);
      for (float* const of : {master.data(), master_host.data()}) of[9] = 1e9f, of[10] = -65520.0f, of[11] = 3e-7f;
      device::Queue queue;
      const Fp16State device{weight.data() + offset, master.data() + offset, m.data() + offset, v.data() + offset},
          host{weight_host.data() + offset, master_host.data() + offset, m_host.data() + offset, v_host.data() + offset};
      cuda::device_adamw(queue, settings_of(2), run, device, gradient.data() + offset);
      host_adamw(settings_of(2), run, source_of(host), gradient.data() + offset, host);
      queue.synchronize();
      expect_same(weight.data(), weight_host.data(), kElements, "weight");
      expect_same(master.data(), master_host.data(), kElements, "master");
      expect_same(m.data(), m_host.data(), kElements, "m");
      expect_same(v.data(), v_host.data(), kElements, "v");
    }
  }
}

// State is read once and written once, the gradient is read once, and nothing more is moved.
TEST(DeviceAdamW, MovesWhatItsOperandsHave) {
  constexpr std::int64_t count = 2048;
  const auto high = numbers<BFloat16>(1);
  const auto m = numbers<float>(2), v = numbers<float>(3, squared), gradient = numbers<float>(4);
  Buffer<std::int16_t> low(kElements);
  std::ranges::fill(low.all(), std::int16_t{0});
  if (!device::kCounts) GTEST_SKIP() << "bytes are counted on the emulated device";
  device::Queue queue({.counts = true});
  cuda::device_adamw(queue, settings_of(1), {.count = count}, ExactState{high.data(), low.data(), m.data(), v.data()},
                     gradient.data());
  EXPECT_EQ(queue.counts().read_bytes, count * 16);
  EXPECT_EQ(queue.counts().written_bytes, count * 12);
  EXPECT_EQ(queue.counts().moved_bytes, queue.counts().requested_bytes);
}

// --- squares --------------------------------------------------------------------------------------------------------------

TEST(DeviceSquares, NodesOfAnySizeAreTheHosts) {
  const auto gradient = numbers<float>(9);
  for (const std::int64_t elements : {1024, 2048, 16 * 7, 2992}) {
    const std::int64_t offset = elements == 2048 ? 1 : 0;  // at 1 vectors do not fit
    for (std::int64_t node = kSquareLeaf; node <= kSquareStretch; node *= 2) {
      if (elements % node != 0) continue;
      const std::int64_t count = elements / node;
      for (const bool rounds : {false, true}) {
        std::vector<double> expected(static_cast<std::size_t>(count));
        std::vector<BFloat16> rounded(kElements);
        if (rounds) {
          ops::round_and_square_nodes(elements, node, gradient.data() + offset, rounded.data(), expected.data());
        } else {
          ops::square_nodes(elements, node, gradient.data() + offset, expected.data());
        }
        const Buffer<double> sums(static_cast<std::size_t>(count));
        const Buffer<BFloat16> device_rounded(static_cast<std::size_t>(elements));
        device::Queue queue({.seed = 7});
        if (rounds) {
          cuda::device_squares<true>(queue, {elements, node, gradient.data() + offset, device_rounded.data(), sums.data()});
          queue.synchronize();
          expect_same(device_rounded.data(), rounded.data(), elements, "rounded");
        } else {
          cuda::device_squares<false>(queue, {elements, node, gradient.data() + offset, nullptr, sums.data()});
        }
        queue.synchronize();
        expect_same(sums.data(), expected.data(), count, "sums");
      }
    }
  }
}

// Whole sectors are moved, each once.
TEST(DeviceSquares, MoveWhatTheirOperandsHave) {
  if (!device::kCounts) GTEST_SKIP() << "bytes are counted on the emulated device";
  constexpr std::int64_t count = 2048;
  const auto gradient = numbers<float>(9);
  const Buffer<double> sums(count / kSquareStretch);
  const Buffer<BFloat16> rounded(count);
  device::Queue queue({.counts = true});
  cuda::device_squares<true>(queue, {count, kSquareStretch, gradient.data(), rounded.data(), sums.data()});
  EXPECT_EQ(queue.counts().read_bytes, count * 4);
  EXPECT_EQ(queue.counts().written_bytes, count * 2 + 32);
  EXPECT_LE(queue.counts().moved_bytes, queue.counts().requested_bytes + 2 * 32);
}

TEST(DeviceSquares, WhatLiesBetweenPiecesCountsAsZeros) {
  Buffer<float> gradient(4096);
  for (std::int64_t i = 0; i < 4096; ++i) gradient.data()[i] = uniform(3, i);
  ParameterBlock block{.elements = 4096};
  block.pieces = {
      {.rows = 100, .columns = 7, .begin = 0}, {.rows = 11, .columns = 100, .begin = 1024}, {.rows = 64, .begin = 3008}};
  std::vector<cuda::CountedRange> ranges;
  for (const TensorPiece& piece : block.pieces) ranges.push_back({piece.begin, piece.begin + piece.elements()});
  for (std::int64_t i = 0; i < 4096; ++i) {
    if (std::ranges::none_of(ranges, [&](const auto& range) { return range.begin <= i && i < range.end; }))
      gradient.data()[i] = std::numeric_limits<float>::quiet_NaN();
  }
  const Buffer<cuda::CountedRange> device_ranges{std::span<const cuda::CountedRange>(ranges)};
  const Buffer<double> sums(4), whole(1);
  device::Queue queue;
  cuda::device_squares<false>(queue, {4096, kSquareStretch, gradient.data(), nullptr, sums.data(), 0, device_ranges.data(),
                                      static_cast<int>(ranges.size())});
  launch(queue, {1}, cuda::JoinNodes{4, 4, sums.data(), whole.data()});
  queue.synchronize();
  const double expected = square_node(block, {.begin = 0, .elements = 4096}, {gradient.data()});
  EXPECT_EQ(*whole.data(), expected);
}

// The sum of a block of any length, and of one in which only some rows have squares: the others count as zeros.
TEST(DeviceSquares, TheSumOfABlock) {
  for (const std::int64_t count : {1, 2, 3, 63, 64, 65, 4096, 4097, 5001}) {
    for (const std::int64_t every : {1, 7}) {
      Buffer<double> nodes(static_cast<std::size_t>(count));
      std::vector<std::int64_t> begins;
      for (std::int64_t i = 0; i < count; ++i) {
        const bool is_there = random_bits(2, 0, 5, static_cast<std::uint64_t>(i)) % static_cast<std::uint32_t>(every) == 0;
        nodes.data()[i] = is_there ? std::abs(static_cast<double>(uniform(6, i))) / 3 : 0.0;
        if (is_there) begins.push_back(i);
      }
      const Buffer<double> space(static_cast<std::size_t>(cuda::scratch_of_sum(count))), sum(1);
      device::Queue queue({.seed = 5});
      cuda::device_sum_of_nodes(queue, count, nodes.data(), space.data(), sum.data());
      queue.synchronize();
      const auto begin_of = [&](std::int64_t i) { return begins[static_cast<std::size_t>(i)]; };
      EXPECT_EQ(*sum.data(),
                sum_of_nodes(0, std::ssize(begins), begin_of, [&](std::int64_t i) { return nodes.data()[begin_of(i)]; }))
          << count << ", one of " << every;
    }
  }
}

TEST(DeviceSquares, TheNormAndItsClipFactor) {
  const std::vector<double> of_blocks = {3.0, 4.0, 9.0};
  const Buffer<double> sums{std::span<const double>(of_blocks)}, words(2);
  device::Queue queue;
  for (const float clip : {0.0f, 1.0f, 10.0f}) {
    launch(queue, {1}, cuda::NormOfBlocks{3, clip, sums.data(), words.data()});
    queue.synchronize();
    EXPECT_EQ(words.data()[0], 4.0);
    EXPECT_EQ(words.data()[1], clip == 1.0f ? static_cast<double>(1.0f / (4.0f + 1e-6f)) : 1.0);
  }
}

}  // namespace
}  // namespace spillway
