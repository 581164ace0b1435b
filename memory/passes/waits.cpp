#include "memory/passes/waits.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "memory/passes/access_map.h"

namespace spillway {
namespace {

// [lanes] the last operation (over two rounds) that is complete when another starts; -1: none.
using Known = By<Lane, int>;

void derive(const Plan& plan, Program& program, bool repeats) {
  const int count = static_cast<int>(program.ops.size());
  const int rounds = repeats ? 2 : 1;
  AccessBook book(plan, program);
  std::vector<Known> known(static_cast<std::size_t>(count) * rounds);
  Known tail;  // the last operation issued on each lane
  std::ranges::fill(tail, -1);
  std::vector<int> conflicts;
  std::vector<Wait> waits;
  std::vector<Lane> lanes;  // [operations] each one's lane, in an array of its own as it is read often
  lanes.reserve(program.ops.size());
  for (const Op& op : program.ops) lanes.push_back(op.lane);
  // Two rounds: the second sees what the turn before has touched, which may be the last turn of the step before.
  for (int id = 0; id < count * rounds; ++id) {
    const int round = id < count ? 0 : 1;
    Op& op = program.ops[id - round * count];
    const auto lane_of = [&](int other) { return lanes[other < count ? other : other - count]; };
    Known& mine = known[id];
    std::ranges::fill(mine, -1);
    const auto absorb = [&](int other) {
      for (const Lane lane : kAll<Lane>) mine[lane] = std::max(mine[lane], known[other][lane]);
    };
    if (tail[op.lane] >= 0) {
      absorb(tail[op.lane]);
      // On an NVMe lane the operation before has started, but need not be complete.
      if (!is_drive(op.lane)) mine[op.lane] = std::max(mine[op.lane], tail[op.lane]);
    }
    tail[op.lane] = id;
    conflicts.clear();
    for (const Operand& operand : op.operands) {
      if (operand.buffer < 0) continue;
      book.access(operand, id, op.lane, [&](int other) {
        if (other != id && mine[lane_of(other)] < other) conflicts.push_back(other);
      });
    }
    // The latest conflict comes first: a wait for it may imply the others.
    std::sort(conflicts.begin(), conflicts.end(), std::greater<>());
    waits.clear();
    for (const int other : conflicts) {
      if (mine[lane_of(other)] >= other) continue;
      waits.push_back(other < count ? Wait{other, -round} : Wait{other - count, 1 - round});
      absorb(other);
      mine[lane_of(other)] = std::max(mine[lane_of(other)], other);
    }
    if (round + 1 == rounds) op.waits.assign(waits.begin(), waits.end());
  }
}

}  // namespace

void derive_waits(Plan& plan) {
  derive(plan, plan.step, true);
  derive(plan, plan.evaluate, false);
}

}  // namespace spillway
