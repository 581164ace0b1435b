#include "memory/packing.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "memory/error.h"

namespace spillway {
namespace {

Bytes span_of(const Buffer& buffer) { return buffer.bytes * buffer.slots; }

// The bytes above `base` that no live buffer has: gaps between buffers, and everything above the highest.
class FreeSpace {
 public:
  explicit FreeSpace(Bytes base) : tail_(base), peak_(base) {}

  // The smallest gap that holds it, or above all.
  Bytes take(Bytes bytes) {
    const auto fit = by_size_.lower_bound({bytes, 0});
    if (fit == by_size_.end()) {
      const Bytes offset = tail_;
      tail_ += bytes;
      peak_ = std::max(peak_, tail_);
      return offset;
    }
    const auto [size, offset] = *fit;
    erase(by_offset_.find(offset));
    if (size > bytes) insert(offset + bytes, size - bytes);
    return offset;
  }

  void give_back(Bytes offset, Bytes bytes) {
    if (bytes == 0) return;
    auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.end() && next->first == offset + bytes) {
      bytes += next->second;
      next = erase(next);
    }
    if (next != by_offset_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == offset) {
        offset = before->first;
        bytes += before->second;
        erase(before);
      }
    }
    if (offset + bytes == tail_) {
      tail_ = offset;
    } else {
      insert(offset, bytes);
    }
  }

  Bytes peak() const { return peak_; }

 private:
  using ByOffset = std::map<Bytes, Bytes>;
  void insert(Bytes offset, Bytes bytes) {
    by_offset_.emplace(offset, bytes);
    by_size_.emplace(bytes, offset);
  }
  ByOffset::iterator erase(ByOffset::iterator gap) {
    by_size_.erase({gap->second, gap->first});
    return by_offset_.erase(gap);
  }

  ByOffset by_offset_;                        // offset -> bytes; gaps never touch each other
  std::set<std::pair<Bytes, Bytes>> by_size_;  // the same, (bytes, offset)
  Bytes tail_, peak_;
};

// Places the buffers of one program on one tier (those apart, or the others) above `base`, in the order of their first use, each
// in the smallest gap between the buffers alive then that holds it. Returns the end of the highest.
Bytes pack_program(Program& program, Tier tier, bool apart, Bytes base) {
  std::vector<int> order;
  for (int i = 0; i < static_cast<int>(program.buffers.size()); ++i) {
    const Buffer& buffer = program.buffers[i];
    if (buffer.tier == tier && buffer.apart == apart && buffer.first_op >= 0) order.push_back(i);
  }
  std::vector<int> by_end = order;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    const Buffer &x = program.buffers[a], &y = program.buffers[b];
    // Of buffers that begin together the longest-lived goes first, so that the short-lived end up on top of it.
    return x.first_op != y.first_op ? x.first_op < y.first_op : x.last_op > y.last_op;
  });
  std::stable_sort(by_end.begin(), by_end.end(), [&](int a, int b) { return program.buffers[a].last_op < program.buffers[b].last_op; });
  FreeSpace space(base);
  std::size_t ended = 0;
  for (const int index : order) {
    Buffer& buffer = program.buffers[index];
    for (; program.buffers[by_end[ended]].last_op < buffer.first_op; ++ended) {
      const Buffer& gone = program.buffers[by_end[ended]];
      space.give_back(gone.offset, span_of(gone));
    }
    buffer.offset = space.take(span_of(buffer));
  }
  return space.peak();
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
      SPILLWAY_CHECK(buffer.bytes % kExtentAlignment == 0, "{} has {} bytes", buffer.name.text(), buffer.bytes);
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
