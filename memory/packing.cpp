#include "memory/packing.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "memory/error.h"

namespace spillway {
namespace {

Bytes span_of(const Buffer& buffer) { return buffer.bytes * buffer.slots; }

// Places the buffers of one program on one tier (those apart, or the others) above `base`, in the order of their first use, each in the smallest gap between
// the buffers alive then that holds it. Returns the end of the highest.
Bytes pack_program(Program& program, Tier tier, bool apart, Bytes base) {
  std::vector<int> order;
  for (int i = 0; i < static_cast<int>(program.buffers.size()); ++i) {
    const Buffer& buffer = program.buffers[i];
    if (buffer.tier == tier && buffer.apart == apart && buffer.first_op >= 0) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    const Buffer &x = program.buffers[a], &y = program.buffers[b];
    // Of buffers that begin together the longest-lived goes first, so that the short-lived end up on top of it.
    return x.first_op != y.first_op ? x.first_op < y.first_op : x.last_op > y.last_op;
  });
  std::vector<int> live;  // by ascending offset
  Bytes peak = base;
  for (const int index : order) {
    Buffer& buffer = program.buffers[index];
    std::erase_if(live, [&](int other) { return program.buffers[other].last_op < buffer.first_op; });
    Bytes best = -1, best_gap = std::numeric_limits<Bytes>::max(), end = base;
    std::size_t place = live.size();
    for (std::size_t i = 0; i < live.size(); ++i) {
      const Bytes gap = program.buffers[live[i]].offset - end;
      if (gap >= span_of(buffer) && gap < best_gap) best = end, best_gap = gap, place = i;
      end = program.buffers[live[i]].offset + span_of(program.buffers[live[i]]);
    }
    buffer.offset = best >= 0 ? best : end;
    live.insert(live.begin() + static_cast<std::ptrdiff_t>(place), index);
    peak = std::max(peak, buffer.offset + span_of(buffer));
  }
  return peak;
}

// What the bytes of the peak are, at the operation where the most bytes are alive.
std::array<Bytes, kCategories> categories_at_peak(const Plan& plan, Tier tier) {
  std::array<Bytes, kCategories> resident{};
  for (const Buffer& buffer : plan.resident) {
    if (buffer.tier == tier) resident[static_cast<int>(buffer.category)] += span_of(buffer);
  }
  const int ops = static_cast<int>(plan.step.ops.size());
  std::vector<std::array<Bytes, kCategories>> change(static_cast<std::size_t>(ops) + 1);
  for (const Buffer& buffer : plan.step.buffers) {
    if (buffer.tier != tier || buffer.first_op < 0) continue;
    change[buffer.first_op][static_cast<int>(buffer.category)] += span_of(buffer);
    change[buffer.last_op + 1][static_cast<int>(buffer.category)] -= span_of(buffer);
  }
  std::array<Bytes, kCategories> live{}, best{};
  Bytes most = -1;
  for (const auto& at : change) {
    Bytes sum = 0;
    for (int c = 0; c < kCategories; ++c) sum += live[c] += at[c];
    if (sum > most) most = sum, best = live;
  }
  for (int c = 0; c < kCategories; ++c) best[c] += resident[c];
  return best;
}

}  // namespace

void pack(Plan& plan) {
  for (int t = 0; t < kTiers; ++t) {
    const Tier tier = static_cast<Tier>(t);
    Bytes base = 0;
    for (Buffer& buffer : plan.resident) {
      if (buffer.tier != tier) continue;
      SPILLWAY_CHECK(buffer.bytes % kExtentAlignment == 0, "{} has {} bytes", buffer.name, buffer.bytes);
      buffer.offset = base;
      base += span_of(buffer);
    }
    Bytes peak = base;
    for (Program* program : {&plan.step, &plan.flush, &plan.evaluate}) {
      peak = std::max(peak, pack_program(*program, tier, false, pack_program(*program, tier, true, base)));
    }
    plan.peak[t] = peak;
    plan.at_rest[t] = categories_at_peak(plan, tier);
  }
}

}  // namespace spillway
