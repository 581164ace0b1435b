#include "memory/packing.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
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

// The buffers that a program touches, by their first use and by their last. Both are operations of the program: sorting takes a
// look at each buffer and each operation.
class Uses {
 public:
  explicit Uses(const Program& program) {
    std::vector<int> touched;
    for (int i = 0; i < static_cast<int>(program.buffers.size()); ++i) {
      if (program.buffers[i].first_op >= 0) touched.push_back(i);
    }
    by_end_ = sorted(touched, program.ops.size(), [&](int i) { return program.buffers[i].last_op; });
    // Of buffers that begin together the longest-lived goes first, so that the short-lived end up on top of it.
    const int last = static_cast<int>(program.ops.size()) - 1;
    by_begin_ = sorted(touched, program.ops.size(), [&](int i) { return last - program.buffers[i].last_op; });
    by_begin_ = sorted(by_begin_, program.ops.size(), [&](int i) { return program.buffers[i].first_op; });
  }
  const std::vector<int>& by_begin() const { return by_begin_; }
  const std::vector<int>& by_end() const { return by_end_; }

 private:
  // By key_of(item), which is below `keys`; items of one key keep their order.
  template <typename KeyOf>
  static std::vector<int> sorted(const std::vector<int>& items, std::size_t keys, const KeyOf& key_of) {
    std::vector<int> next(keys + 1, 0), result(items.size());
    for (const int item : items) ++next[static_cast<std::size_t>(key_of(item)) + 1];
    std::partial_sum(next.begin(), next.end(), next.begin());
    for (const int item : items) result[static_cast<std::size_t>(next[static_cast<std::size_t>(key_of(item))]++)] = item;
    return result;
  }

  std::vector<int> by_begin_, by_end_;
};

// Places the buffers of one program on one tier (those apart, or the others) above `base`, in the order of their first use, each
// in the smallest gap between the buffers alive then that holds it. Returns the end of the highest.
Bytes pack_program(Program& program, const Uses& uses, Tier tier, bool apart, Bytes base) {
  const auto is_meant = [&](const Buffer& buffer) { return buffer.tier == tier && buffer.apart == apart; };
  FreeSpace space(base);
  auto ended = uses.by_end().begin();
  for (const int index : uses.by_begin()) {
    Buffer& buffer = program.buffers[index];
    if (!is_meant(buffer)) continue;
    for (; program.buffers[*ended].last_op < buffer.first_op; ++ended) {
      const Buffer& gone = program.buffers[*ended];
      if (is_meant(gone)) space.give_back(gone.offset, span_of(gone));
    }
    buffer.offset = space.take(span_of(buffer));
  }
  return space.peak();
}

// What the bytes of the peak are, at the operation where the most bytes are alive.
std::array<Bytes, kCategories> categories_at_peak(const Plan& plan, Tier tier) {
  std::array<Bytes, kCategories> bytes{};
  for (const Buffer& buffer : plan.resident) {
    if (buffer.tier == tier) bytes[static_cast<int>(buffer.category)] += span_of(buffer);
  }
  const auto for_each_live = [&](const auto& act) {
    for (const Buffer& buffer : plan.step.buffers) {
      if (buffer.tier == tier && buffer.first_op >= 0) act(buffer);
    }
  };
  std::vector<Bytes> change(plan.step.ops.size() + 1);
  for_each_live([&](const Buffer& buffer) {
    change[buffer.first_op] += span_of(buffer);
    change[buffer.last_op + 1] -= span_of(buffer);
  });
  std::partial_sum(change.begin(), change.end(), change.begin());
  const auto peak = static_cast<int>(std::max_element(change.begin(), change.end()) - change.begin());
  for_each_live([&](const Buffer& buffer) {
    if (buffer.first_op <= peak && peak <= buffer.last_op) bytes[static_cast<int>(buffer.category)] += span_of(buffer);
  });
  return bytes;
}

}  // namespace

void pack(Plan& plan) {
  std::vector<std::pair<Program*, Uses>> programs;
  for (Program* program : {&plan.step, &plan.flush, &plan.evaluate}) programs.emplace_back(program, *program);
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
    for (const auto& [program, uses] : programs) {
      peak = std::max(peak, pack_program(*program, uses, tier, false, pack_program(*program, uses, tier, true, base)));
    }
    plan.peak[t] = peak;
    plan.at_rest[t] = categories_at_peak(plan, tier);
  }
}

}  // namespace spillway
