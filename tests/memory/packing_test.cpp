// Places of buffers: buffers that live at the same time share no byte, all lie below the peak, and gaps are few.
#include "memory/passes/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "memory/passes/free_space.h"

namespace spillway {
namespace {

constexpr Bytes kPage = kExtentAlignment;

// A buffer on the device of so many pages that lives from one operation to another.
struct Life {
  Bytes pages;
  int first_op, last_op;
  bool apart = false;
};

Plan plan_of(const std::vector<Life>& lives, Bytes resident_pages = 0) {
  Plan plan;
  if (resident_pages > 0) plan.resident.push_back({.name = {"rests"}, .bytes = resident_pages * kPage, .resident = true});
  for (const Life& life : lives) {
    plan.step.buffers.push_back({.name = {"lives"},
                                 .bytes = life.pages * kPage,
                                 .first_op = life.first_op,
                                 .last_op = life.last_op,
                                 .apart = life.apart});
    plan.step.ops.resize(std::max<std::size_t>(plan.step.ops.size(), static_cast<std::size_t>(life.last_op) + 1));
  }
  return plan;
}

Bytes most_alive(const Program& program) {
  Bytes most = 0;
  for (int op = 0; op < std::ssize(program.ops); ++op) {
    Bytes alive = 0;
    for (const Buffer& buffer : program.buffers) alive += buffer.first_op <= op && op <= buffer.last_op ? buffer.bytes : 0;
    most = std::max(most, alive);
  }
  return most;
}

void expect_places(const Plan& plan, Bytes base) {
  for (const Buffer& a : plan.step.buffers) {
    EXPECT_GE(a.offset, base);
    EXPECT_LE(a.offset + a.bytes, plan.peak[Tier::device]);
    for (const Buffer& b : plan.step.buffers) {
      if (&a == &b || a.bytes == 0 || b.bytes == 0 || a.last_op < b.first_op || b.last_op < a.first_op) continue;
      EXPECT_TRUE(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset) << a.offset << " " << b.offset;
    }
  }
}

// In the order of time the second buffer would lie above the first, and the third above both, as it does not fit the gap below.
TEST(Packing, LargeOnesHaveTheirPlacesFirstWhereTimeLeavesGaps) {
  Plan plan = plan_of({{8, 0, 1}, {1, 1, 9}, {9, 2, 9}}, 3);
  pack(plan);
  expect_places(plan, 3 * kPage);
  EXPECT_EQ(plan.peak[Tier::device], (3 + 10) * kPage);
}

// Buffers that are apart lie from the top down, and no room is left between them and the others.
TEST(Packing, WhatIsApartComesDownFromTheTop) {
  Plan plan = plan_of({{4, 0, 5}, {2, 0, 5, true}, {6, 6, 9, true}});
  pack(plan);
  expect_places(plan, 0);
  EXPECT_EQ(plan.peak[Tier::device], 6 * kPage);
  EXPECT_EQ(plan.step.buffers[0].offset, 0);
  EXPECT_EQ(plan.step.buffers[1].offset, 4 * kPage);
}

TEST(Packing, WhatLivesTogetherSharesNoByte) {
  std::mt19937 draw(7);
  const auto below = [&](int limit) { return static_cast<int>(draw() % static_cast<unsigned>(limit)); };
  double pages = 0, alive = 0;
  for (int round = 0; round < 200; ++round) {
    const int ops = 5 + below(200);
    std::vector<Life> lives;
    for (int i = 0; i < 3 * ops; ++i) {
      const int first = below(ops), length = below(8) == 0 ? ops : 1 + below(8);
      lives.push_back({below(10) == 0 ? 50 + below(50) : below(6), first, std::min(ops - 1, first + length), below(3) == 0});
    }
    Plan plan = plan_of(lives, round);
    pack(plan);
    expect_places(plan, round * kPage);
    pages += static_cast<double>(plan.peak[Tier::device] - round * kPage);
    alive += static_cast<double>(most_alive(plan.step));
  }
  EXPECT_LT(pages, 1.135 * alive);  // 1.16 in the order of time alone
}

TEST(FreeSpace, TakesTheLowestGapThatHolds) {
  const auto anywhere = [](Bytes offset) { return offset; };
  FreeSpace space(10);
  EXPECT_EQ(space.take(5, anywhere), 10);
  EXPECT_EQ(space.take(3, anywhere), 15);
  EXPECT_EQ(space.take(4, anywhere), 18);
  space.give_back(15, 3);
  EXPECT_EQ(space.take(2, anywhere), 15);
  EXPECT_EQ(space.take(2, anywhere), 22);
  EXPECT_EQ(space.take(1, anywhere), 17);
  space.give_back(22, 2);
  EXPECT_EQ(space.end(), 22);
}

TEST(FreeSpace, TakesAPlaceThatIsSaid) {
  FreeSpace space(0);
  space.take_at(8, 4);
  EXPECT_EQ(space.end(), 12);
  space.take_at(2, 2);
  EXPECT_THROW(space.take_at(3, 2), Error);
  // The first gap that holds it is from 0 to 2; clear_from() rules out all below 5, as for a large buffer that comes later.
  EXPECT_EQ(space.take(2, [](Bytes offset) { return offset < 5 ? 5 : offset; }), 5);
  space.give_back(8, 4);
  EXPECT_EQ(space.end(), 7);
}

}  // namespace
}  // namespace spillway
