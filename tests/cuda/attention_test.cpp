// Attention's kernels on the emulated device, against loops in double precision.
#include <random>

#include "tests/cuda/attention_testing.h"

namespace spillway::cuda {
namespace {

TEST(CudaAttention, Lengths) {
  for (const std::int64_t T : {1, 7, 63, 64, 65, 130})
    for (const std::int64_t D : {64, 128}) check({.shape = shape_of(T, 1, 1, D)}, {.counts = T > 1});
}

// Cases of all that may be asked for, with heads of D elements.
std::vector<Case> cases_of(std::int64_t D) {
  std::vector<Case> cases;
  const auto add = [&](ops::AttentionShape shape, const auto& change) {
    Case c{.shape = shape};
    change(c);
    cases.push_back(c);
  };
  add(shape_of(67, 4, 2, D), [](Case& c) { c.shape.sequences = 2; });
  add(shape_of(150, 4, 1, D), [](Case& c) { c.shape.window = 70; });
  add(shape_of(140, 1, 1, D), [](Case& c) { c.shape.window = 3; });
  add(shape_of(65, 2, 2, D), [](Case& c) { c.shape.softcap = 3; });
  add(shape_of(33, 2, 1, D), [](Case& c) { c.shape.keys = 131, c.shape.key_offset = 90; });
  add(shape_of(10, 1, 1, D), [](Case& c) { c.shape.keys = 200, c.shape.key_offset = 60, c.shape.window = 20; });
  add(shape_of(141, 2, 1, D), [](Case& c) { c.shape.sequences = 2, c.documents = {5, 66, 1, 40}; });
  add(shape_of(70, 1, 1, D),
      [](Case& c) { c.shape.keys = 90, c.shape.key_offset = 20, c.shape.window = 30, c.documents = {20, 31}; });
  return cases;
}

TEST(CudaAttention, AllThatMayBeAskedFor) {
  for (const std::int64_t D : {64, 128})
    for (const Case& c : cases_of(D)) check(c);
}

TEST(CudaAttention, HalfPrecision) {
  for (const std::int64_t D : {64, 128}) {
    for (Case c : cases_of(D)) {
      if (c.shape.queries > 80) continue;
      c.type = DType::float16;
      check(c);
    }
  }
  check({.shape = shape_of(9, 2, 1, 40), .type = DType::float16});
}

TEST(CudaAttention, OtherHeadSizes) {
  for (const std::int64_t D : {80, 96, 256}) {
    for (const std::int64_t T : {33, 130}) check({.shape = shape_of(T, 2, 1, D)}, {.counts = true});
    for (const Case& c : cases_of(D)) check(c);
  }
}

// Kernels without tensor cores: fp32, and head sizes that no tile fits, some of which are not whole packs.
TEST(CudaAttention, PlainForms) {
  for (const DType type : {DType::float32, DType::bfloat16}) {
    for (const std::int64_t D : {6, 16}) {
      for (const std::int64_t T : {1, 7, 65}) check({.shape = shape_of(T, 2, 1, D), .type = type}, {.counts = true});
      for (Case c : cases_of(D)) {
        c.type = type;
        c.shape.queries = (c.shape.queries + 2) / 3, c.shape.keys = c.shape.key_offset + c.shape.queries + 3;
        check(c);
      }
    }
    for (const std::int64_t D : {70, 100, 201, 248}) check({.shape = shape_of(9, 2, 1, D), .type = type});
  }
}

TEST(CudaAttention, QueriesAtAPosition) {
  for (const std::int64_t position : {0, 5, 70}) {
    for (const std::int64_t queries : {1, 2, 37}) {
      for (const DType type : {DType::float32, DType::bfloat16}) {
        Case c{.shape = shape_of(queries, 4, 2, 64), .type = type, .by_position = true};
        c.shape.keys = 128, c.shape.key_offset = position;
        check(c);
        c.shape.window = 9;
        check(c);
      }
    }
  }
}

// A random combination of all that a model or a call may ask for.
Case random_case(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::int64_t end) { return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end)); };
  constexpr std::int64_t kSizes[] = {64, 80, 96, 128, 256};
  const std::int64_t D = below(3) == 0 ? 1 + below(100) : kSizes[below(5)], kv_heads = 1 + below(2), T = 1 + below(100);
  Case c{.shape = shape_of(T, kv_heads * (1 + below(3)), kv_heads, D), .type = static_cast<DType>(below(3))};
  c.shape.sequences = 1 + below(2);
  if (below(2) == 0) c.shape.window = 1 + below(T + 20);
  if (below(3) == 0) c.shape.softcap = 0.5f + static_cast<float>(below(30));
  if (below(3) == 0) c.shape.key_offset = below(100), c.shape.keys = c.shape.key_offset + T + below(70);
  for (std::int64_t i = below(2) == 0 ? 1 + below(5) : 0; i > 0; --i)
    c.documents.push_back(static_cast<std::int32_t>(1 + below(T)));
  return c;
}
TEST(CudaAttention, RandomCases) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) check(random_case(seed), {.counts = true});
}
TEST(CudaAttention, SlowRandomCases) {
  for (std::uint64_t seed = 101; seed <= 250; ++seed) check(random_case(seed), {.seed = seed, .counts = true});
}
// Sequences with more tiles than take turns, in the widest heads of the catalogue.
TEST(CudaAttention, SlowLongSequences) {
  for (const std::int64_t D : {64, 128, 256}) {
    check({.shape = shape_of(700, 2, 1, D)}, {.counts = true});
    Case c{.shape = shape_of(650, 1, 1, D), .documents = {300, 20, 7}};
    c.shape.window = 200;
    check(c, {.counts = true});
  }
}

#if !defined(__CUDACC__)
// Older chips cut their sums of products off in another way; all that kernels use of tensor cores exists from sm_80 on.
TEST(CudaAttention, OnTheTensorCoresOfOlderChips) {
  for (const std::int64_t D : {64, 80, 96, 128, 256}) {
    for (const DType type : {DType::bfloat16, DType::float16}) {
      Case c{.shape = shape_of(70, 2, 1, D), .type = type};
      check(c, {.chip = simt::Chip::sm_80});
      c.shape.window = 33, c.shape.softcap = 5;
      check(c, {.chip = simt::Chip::sm_80});
    }
  }
}
#endif

TEST(CudaAttention, WhatNoKernelHasIsRefused) {
  device::Queue queue;
  const auto refuses = [&](const Case& c, const auto& change) {
    const Problem problem(c);
    AttentionArguments a = problem.arguments();
    change(a);
    EXPECT_THROW(attend_backward(queue, a), Error);
  };
  const Case c{.shape = shape_of(3, 2, 1, 64)};
  refuses({.shape = shape_of(3, 2, 1, 264)}, [](AttentionArguments&) {});
  refuses(c, [](AttentionArguments& a) { a.shape.keys = 2; });
  refuses(c, [](AttentionArguments& a) { a.shape.kv_heads = 3; });
  const std::int64_t position = 0;
  refuses(c, [&](AttentionArguments& a) { a.position = &position; });
}

// Each block reads its own rows once, and of the other rows those that they see or are seen by, to the tile. Everything is in
// whole sectors.
TEST(CudaAttention, MovesTheBytesThatItMust) {
  if (!device::kCounts) GTEST_SKIP() << "bytes are counted on the emulated device";
  constexpr std::int64_t T = 256, D = 64, kRow = D * 2, kNumber = 4;
  const Case c{.shape = shape_of(T, 1, 1, D)};
  const std::int64_t seen = 128 + 256, seen_by_64 = 64 + 128 + 192 + 256;
  const std::int64_t delta = 2 * T * kRow, keys = (2 * T + 2 * seen_by_64) * kRow + 2 * seen_by_64 * kNumber,
                     queries = (2 * T + 2 * seen_by_64) * kRow + 2 * T * kNumber;
  for (const device::Options& options : devices_of(c, {.counts = true})) {
    SCOPED_TRACE(on_hopper(options));
    const Problem problem(c);
    device::Queue queue(options);
    attend(queue, problem.arguments());
    EXPECT_EQ(queue.counts().read_bytes, (T + 2 * seen) * kRow);
    EXPECT_EQ(queue.counts().written_bytes, T * (kRow + kNumber));
    EXPECT_LE(queue.counts().moved_bytes, queue.counts().requested_bytes);
    queue.clear_counts();
    attend_backward(queue, problem.arguments());
    EXPECT_EQ(queue.counts().read_bytes, delta + keys + queries);
    EXPECT_EQ(queue.counts().written_bytes, 3 * T * kRow + T * kNumber);
    EXPECT_LE(queue.counts().moved_bytes, queue.counts().requested_bytes);
  }
}

std::vector<std::byte> bits_of(const Case& c, const device::Options& options) {
  const Problem problem(c);
  device::Queue queue(options);
  attend(queue, problem.arguments());
  attend_backward(queue, problem.arguments());
  queue.synchronize();
  std::vector<std::byte> bits;
  for (const auto& part : {problem.o.bytes(), problem.dq.bytes(), problem.dk.bytes(), problem.dv.bytes()})
    bits.insert(bits.end(), part.begin(), part.end());
  const auto lse = std::as_bytes(problem.lse.all());
  bits.insert(bits.end(), lse.begin(), lse.end());
  return bits;
}
TEST(CudaAttention, BitsDoNotDependOnTheOrderOfBlocksAndWarps) {
  for (const Case& c : {Case{.shape = shape_of(130, 4, 2, 64)}, Case{.shape = shape_of(70, 2, 1, 128)},
                        Case{.shape = shape_of(33, 4, 2, 32), .type = DType::float32}}) {
    for (device::Options options : devices_of(c, {.seed = 1})) {
      const auto expected = bits_of(c, options);
      for (options.seed = 2; options.seed < 5; ++options.seed) EXPECT_EQ(bits_of(c, options), expected) << options.seed;
    }
  }
}

}  // namespace
}  // namespace spillway::cuda
