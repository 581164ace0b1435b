#include "memory/passes/packing.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include "memory/error.h"
#include "memory/passes/sort_stably.h"

namespace spillway {
namespace {

Bytes span_of(const Buffer& buffer) { return buffer.bytes * buffer.slots; }

// The bytes above `base` that no live buffer has: gaps between buffers, and everything above the highest.
class FreeSpace {
 public:
  explicit FreeSpace(Bytes base) : end_(base) {}

  // The lowest gap that holds it, or above all.
  Bytes take(Bytes bytes) {
    for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
      if (gap->bytes < bytes) continue;
      const Bytes offset = gap->offset;
      gap->offset += bytes;
      gap->bytes -= bytes;
      if (gap->bytes == 0) gaps_.erase(gap);
      return offset;
    }
    return std::exchange(end_, end_ + bytes);
  }

  void give_back(Bytes offset, Bytes bytes) {
    if (bytes == 0) return;
    auto next = std::lower_bound(gaps_.begin(), gaps_.end(), offset, [](const Gap& gap, Bytes at) { return gap.offset < at; });
    if (next != gaps_.begin() && std::prev(next)->offset + std::prev(next)->bytes == offset) {
      --next;
      next->bytes += bytes;
    } else {
      next = gaps_.insert(next, {offset, bytes});
    }
    const auto after = std::next(next);
    if (after != gaps_.end() && next->offset + next->bytes == after->offset) {
      next->bytes += after->bytes;
      gaps_.erase(after);
    }
    if (gaps_.back().offset + gaps_.back().bytes == end_) {
      end_ = gaps_.back().offset;
      gaps_.pop_back();
    }
  }

  Bytes end() const { return end_; }  // of the highest that is alive

 private:
  struct Gap {
    Bytes offset, bytes;
  };
  std::vector<Gap> gaps_;  // by offset; no two touch. There are as many as live buffers at most: few.
  Bytes end_;
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
    // Of buffers that begin together the longest-lived goes first, so that the short-lived end up on top of it; of those that
    // also end together, which are few, the largest, as the others find room more easily.
    const int last = static_cast<int>(program.ops.size()) - 1;
    by_begin_ = sorted(touched, program.ops.size(), [&](int i) { return last - program.buffers[i].last_op; });
    by_begin_ = sorted(by_begin_, program.ops.size(), [&](int i) { return program.buffers[i].first_op; });
    const auto lives_otherwise = [&](int a, int b) {
      const Buffer &x = program.buffers[a], &y = program.buffers[b];
      return x.first_op != y.first_op || x.last_op != y.last_op;
    };
    const auto is_larger = [&](int a, int b) { return program.buffers[a].bytes > program.buffers[b].bytes; };
    for (auto begin = by_begin_.begin(); begin != by_begin_.end();) {
      const auto end = std::find_if(begin, by_begin_.end(), [&](int other) { return lives_otherwise(*begin, other); });
      sort_stably(begin, end, is_larger);
      begin = end;
    }
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

// The buffers of one program on one tier, placed operation by operation: each, where its first use begins, in the lowest gap
// between those alive that holds it, those apart counted from the top down and the others from `base` up. The two grow towards
// each other, and what one leaves is the other's.
class Placing {
 public:
  // `uses`: of the program; must outlive this.
  Placing(const Program& program, const Uses& uses, Tier tier, Bytes base)
      : program_(program), uses_(uses), tier_(tier), below_(base), offsets_(program.buffers.size(), -1) {}

  // To be called for every operation in turn.
  void go_to(int op) {
    const auto is_there = [&](const std::vector<int>& list, std::size_t at) { return at < list.size(); };
    for (; is_there(uses_.by_end(), ended_) && buffer(uses_.by_end()[ended_]).last_op < op; ++ended_) {
      const int index = uses_.by_end()[ended_];
      if (buffer(index).tier == tier_) space_of(index).give_back(offsets_[index], span_of(buffer(index)));
    }
    for (; is_there(uses_.by_begin(), begun_) && buffer(uses_.by_begin()[begun_]).first_op == op; ++begun_) {
      const int index = uses_.by_begin()[begun_];
      if (buffer(index).tier == tier_) offsets_[index] = space_of(index).take(span_of(buffer(index)));
    }
  }
  Bytes end_below() const { return below_.end(); }
  Bytes bytes_above() const { return above_.end(); }
  // Where it is once all lie below `end`; -1: not on the tier, or never used.
  Bytes offset_of(int index, Bytes end) const {
    const Bytes offset = offsets_[index];
    return offset >= 0 && buffer(index).apart ? end - offset - span_of(buffer(index)) : offset;
  }

 private:
  const Buffer& buffer(int index) const { return program_.buffers[index]; }
  FreeSpace& space_of(int index) { return buffer(index).apart ? above_ : below_; }

  const Program& program_;
  const Uses& uses_;
  const Tier tier_;
  FreeSpace below_, above_{0};
  std::vector<Bytes> offsets_;
  std::size_t ended_ = 0, begun_ = 0;  // in the lists of uses
};

// Returns the end of the highest.
Bytes pack_program(Program& program, const Uses& uses, Tier tier, Bytes base) {
  Placing placing(program, uses, tier, base);
  Bytes end = base;
  for (int op = 0; op < std::ssize(program.ops); ++op) {
    placing.go_to(op);
    end = std::max(end, placing.end_below() + placing.bytes_above());
  }
  for (int index = 0; index < std::ssize(program.buffers); ++index) {
    const Bytes offset = placing.offset_of(index, end);
    if (offset >= 0) program.buffers[index].offset = offset;
  }
  return end;
}

// What the bytes of the peak are, at the operation where the most bytes are alive.
By<Category, Bytes> categories_at_peak(const Plan& plan, Tier tier) {
  By<Category, Bytes> bytes;
  for (const Buffer& buffer : plan.resident) {
    if (buffer.tier == tier) bytes[buffer.category] += span_of(buffer);
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
    if (buffer.first_op <= peak && peak <= buffer.last_op) bytes[buffer.category] += span_of(buffer);
  });
  return bytes;
}

}  // namespace

void pack(Plan& plan) {
  std::vector<std::pair<Program*, Uses>> programs;
  for (Program* program : {&plan.step, &plan.evaluate}) programs.emplace_back(program, *program);
  for (const Tier tier : kAll<Tier>) {
    Bytes base = 0;
    for (Buffer& buffer : plan.resident) {
      if (buffer.tier != tier) continue;
      SPILLWAY_CHECK(buffer.bytes % kExtentAlignment == 0, "{} has {} bytes", buffer.name.text(), buffer.bytes);
      buffer.offset = base;
      base += span_of(buffer);
    }
    plan.peak[tier] = base;
    for (const auto& [program, uses] : programs)
      plan.peak[tier] = std::max(plan.peak[tier], pack_program(*program, uses, tier, base));
    plan.at_rest[tier] = categories_at_peak(plan, tier);
  }
}

}  // namespace spillway
