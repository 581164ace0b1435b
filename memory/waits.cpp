#include "memory/waits.h"

#include <algorithm>
#include <array>

#include "memory/access_map.h"

namespace spillway {
namespace {

bool overlaps_requests(Lane lane) { return lane == Lane::nvme_read || lane == Lane::nvme_write; }

void derive(const Plan& plan, Program& program, bool repeats) {
  const int count = static_cast<int>(program.ops.size());
  std::array<AccessMap, kTiers> maps;
  // Twice around: the second time sees what the step before has touched.
  for (int round = 0; round < (repeats ? 2 : 1); ++round) {
    for (int index = 0; index < count; ++index) {
      Op& op = program.ops[index];
      const int id = round * count + index;
      std::array<int, kLanes> latest;
      latest.fill(-1);
      const auto conflict = [&](int other) {
        if (other == id) return;
        const Lane lane = program.ops[other % count].lane;
        if (lane == op.lane && !overlaps_requests(lane)) return;
        int& last = latest[static_cast<int>(lane)];
        last = std::max(last, other);
      };
      for (const Operand& operand : op.operands) {
        if (operand.buffer < 0) continue;
        const Buffer& buffer = buffer_of(plan, program, operand.buffer);
        // Two slots count as one: what is read from the one is older than what is written to the other.
        const Bytes begin = buffer.offset + operand.begin;
        maps[static_cast<int>(buffer.tier)].access(begin, begin + operand.bytes, operand.access != Access::read, id,
                                                   static_cast<int>(op.lane), conflict);
      }
      op.waits.clear();
      for (const int other : latest) {
        if (other >= 0) op.waits.push_back({other % count, other / count - round});
      }
    }
  }
}

}  // namespace

void derive_waits(Plan& plan) {
  derive(plan, plan.step, true);
  derive(plan, plan.flush, false);
  derive(plan, plan.evaluate, false);
}

}  // namespace spillway
