#include "memory/passes/packing.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "memory/base/error.h"
#include "memory/passes/free_space.h"
#include "memory/passes/sort_stably.h"

namespace spillway {
namespace {

// Shares of the most bytes that are alive at once: a second packing must save 1/16 of them, and a buffer of 1/20 is large.
constexpr Bytes kSavedOf = 16, kLargeOf = 20;

Bytes span_of(const Buffer& buffer) { return buffer.bytes * buffer.slots; }

// The buffers that a program touches, sorted by their first use and by their last. Both uses are operations of the program, so
// the sort is linear in buffers and operations.
class Uses {
 public:
  explicit Uses(const Program& program) {
    std::vector<int> touched;
    for (int i = 0; i < static_cast<int>(program.buffers.size()); ++i) {
      if (program.buffers[i].first_op >= 0) touched.push_back(i);
    }
    by_end_ = sorted(touched, program.ops.size(), [&](int i) { return program.buffers[i].last_op; });
    // Among buffers that begin together the longest-lived goes first, so that the short-lived end up on top of it; among those
    // that also end together, which are few, the largest goes first, as the others find room more easily.
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
  // The items sorted by key_of(item), which is below `keys`; items of one key keep their order.
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

// Large buffers, which get their places before the others, as a large buffer finds no gap between small ones. They are placed
// from the largest to the smallest, each at the lowest offset from `base` on that is free as long as it lives (Pisarchyk and Lee
// 2020, "Efficient Memory Management for Deep Neural Net Inference": greedy by size).
class LargeBuffers {
 public:
  struct Placed {
    int index, first_op, last_op;
    Bytes offset, end;
  };

  LargeBuffers() = default;  // none
  LargeBuffers(const Program& program, const Uses& uses, Tier tier, Bytes base, Bytes from)
      : near_(kStretches), stretch_(static_cast<int>(program.ops.size()) / kStretches + 1) {
    for (const int index : uses.by_begin()) {
      const Buffer& buffer = program.buffers[index];
      if (buffer.tier == tier && !buffer.apart && span_of(buffer) >= from)
        placed_.push_back({index, buffer.first_op, buffer.last_op, base, base + span_of(buffer)});
    }
    sort_stably(placed_.begin(), placed_.end(), [](const Placed& a, const Placed& b) { return a.end > b.end; });
    for (Placed& buffer : placed_) place(buffer);
    sort_stably(placed_.begin(), placed_.end(), [](const Placed& a, const Placed& b) { return a.first_op < b.first_op; });
  }

  // The next large buffer, if it begins by operation `op`; else null. To be called for every operation in turn.
  const Placed* begin_next(int op) {
    return begun_ < placed_.size() && placed_[begun_].first_op <= op ? &placed_[begun_++] : nullptr;
  }
  // The lowest offset from `offset` on for a buffer that lives until `last_op`: no large buffer that begins by then lies there.
  Bytes clear_from(Bytes offset, Bytes bytes, int last_op) const {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t i = begun_; i < placed_.size() && placed_[i].first_op <= last_op; ++i) {
        if (placed_[i].offset >= offset + bytes || placed_[i].end <= offset) continue;
        offset = placed_[i].end;
        moved = true;
      }
    }
    return offset;
  }

 private:
  static constexpr int kStretches = 64;  // parts that a program is cut into

  void place(Placed& buffer) {
    const auto stretches =
        std::span(near_).subspan(buffer.first_op / stretch_, buffer.last_op / stretch_ - buffer.first_op / stretch_ + 1);
    std::vector<Placed> beside;
    for (const std::vector<Placed>& stretch : stretches) {
      std::ranges::copy_if(stretch, std::back_inserter(beside), [&](const Placed& other) {
        return other.last_op >= buffer.first_op && buffer.last_op >= other.first_op;
      });
    }
    std::ranges::sort(beside, {}, &Placed::offset);
    const Bytes bytes = buffer.end - buffer.offset;
    for (const Placed& other : beside) {
      if (other.offset >= buffer.offset + bytes) break;
      buffer.offset = std::max(buffer.offset, other.end);
    }
    buffer.end = buffer.offset + bytes;
    for (std::vector<Placed>& stretch : stretches) stretch.push_back(buffer);
  }

  std::vector<Placed> placed_;             // sorted by their first use
  std::vector<std::vector<Placed>> near_;  // [stretches] those that are alive in the stretch
  int stretch_ = 1;                        // operations of a stretch
  std::size_t begun_ = 0;
};

// Places the buffers of one program on one tier, operation by operation. At its first use each buffer gets the lowest gap between
// live ones that holds it and that no large buffer will need. Buffers that are apart grow from the top down, the others from
// `base` up, towards each other, so that either side may use the room that the other leaves.
class Placing {
 public:
  // `uses` are those of `program`; both must outlive this.
  Placing(const Program& program, const Uses& uses, Tier tier, Bytes base, LargeBuffers large = {})
      : program_(program),
        uses_(uses),
        tier_(tier),
        below_(base),
        large_(std::move(large)),
        offsets_(program.buffers.size(), -1),
        end_(base) {
    for (int op = 0; op < std::ssize(program.ops); ++op) {
      go_to(op);
      end_ = std::max(end_, below_.end() + above_.end());
      most_alive_ = std::max(most_alive_, alive_);
    }
  }

  Bytes end() const { return end_; }  // end of the highest buffer
  Bytes most_alive() const { return most_alive_; }
  void give_offsets(Program& program) const {
    for (int index = 0; index < std::ssize(offsets_); ++index) {
      Buffer& of = program.buffers[index];
      const Bytes offset = offsets_[index];
      if (offset >= 0) of.offset = of.apart ? end_ - offset - span_of(of) : offset;
    }
  }

 private:
  void go_to(int op) {
    const auto is_there = [&](const std::vector<int>& list, std::size_t at) { return at < list.size(); };
    for (; is_there(uses_.by_end(), ended_) && buffer(uses_.by_end()[ended_]).last_op < op; ++ended_) {
      const int index = uses_.by_end()[ended_];
      if (buffer(index).tier != tier_) continue;
      space_of(index).give_back(offsets_[index], span_of(buffer(index)));
      alive_ -= span_of(buffer(index));
    }
    while (const LargeBuffers::Placed* next = large_.begin_next(op)) {
      below_.take_at(next->offset, next->end - next->offset);
      offsets_[next->index] = next->offset;
      alive_ += next->end - next->offset;
    }
    for (; is_there(uses_.by_begin(), begun_) && buffer(uses_.by_begin()[begun_]).first_op == op; ++begun_) {
      const int index = uses_.by_begin()[begun_];
      if (buffer(index).tier == tier_ && offsets_[index] < 0) place(index);
    }
  }
  void place(int index) {
    const Bytes bytes = span_of(buffer(index));
    const auto clear_from = [&](Bytes offset) {
      return buffer(index).apart ? offset : large_.clear_from(offset, bytes, buffer(index).last_op);
    };
    offsets_[index] = space_of(index).take(bytes, clear_from);
    alive_ += bytes;
  }
  const Buffer& buffer(int index) const { return program_.buffers[index]; }
  FreeSpace& space_of(int index) { return buffer(index).apart ? above_ : below_; }

  const Program& program_;
  const Uses& uses_;
  const Tier tier_;
  FreeSpace below_, above_{0};
  LargeBuffers large_;
  std::vector<Bytes> offsets_;  // [buffers] -1: not on the tier, or never used; of buffers apart: counted from the top
  Bytes end_, alive_ = 0, most_alive_ = 0;
  std::size_t ended_ = 0, begun_ = 0;  // indices into the two lists of uses_
};

// Returns the end of the highest buffer. Placing in the order of time is fast and mostly good, and a buffer hardly waits for the
// bytes' previous user. With large buffers placed first it waits longer, so that packing is taken only where it saves enough.
Bytes pack_program(Program& program, const Uses& uses, Tier tier, Bytes base) {
  std::optional<Placing> placing(std::in_place, program, uses, tier, base);
  const Bytes end = placing->end(), alive = placing->most_alive(), saved = alive / kSavedOf;
  placing->give_offsets(program);
  if (end - base <= alive + saved) return end;
  placing.emplace(program, uses, tier, base, LargeBuffers(program, uses, tier, base, alive / kLargeOf));
  if (placing->end() + saved >= end) return end;
  placing->give_offsets(program);
  return placing->end();
}

// The bytes of each category at the operation where the most bytes are alive.
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
