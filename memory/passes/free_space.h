// The free bytes of an address space above a base: gaps between buffers, and everything above the highest one.
// Not here: who takes what, when and where (packing.h).
#pragma once

#include <algorithm>
#include <iterator>
#include <vector>

#include "memory/base/error.h"
#include "memory/base/types.h"

namespace spillway {

class FreeSpace {
 public:
  explicit FreeSpace(Bytes base) : end_(base) {}

  // Takes `bytes` in the lowest gap that holds them, or above all buffers, and returns their offset. `clear_from(offset)`: the
  // lowest allowed offset from there on.
  template <typename ClearFrom>
  Bytes take(Bytes bytes, const ClearFrom& clear_from) {
    for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
      if (gap->bytes < bytes) continue;
      const Bytes offset = clear_from(gap->offset);
      if (offset + bytes > gap->end()) continue;
      cut(gap, offset, bytes);
      return offset;
    }
    const Bytes offset = clear_from(end_);
    raise(offset, bytes);
    return offset;
  }

  // Takes bytes at an offset, where they must be free.
  void take_at(Bytes offset, Bytes bytes) {
    if (offset >= end_) return raise(offset, bytes);
    const auto gap = std::lower_bound(gaps_.begin(), gaps_.end(), offset, [](const Gap& g, Bytes at) { return g.end() <= at; });
    SPILLWAY_CHECK(gap != gaps_.end() && gap->offset <= offset && offset + bytes <= gap->end(), "{} is not free", offset);
    cut(gap, offset, bytes);
  }

  void give_back(Bytes offset, Bytes bytes) {
    if (bytes == 0) return;
    auto next = std::lower_bound(gaps_.begin(), gaps_.end(), offset, [](const Gap& gap, Bytes at) { return gap.offset < at; });
    if (next != gaps_.begin() && std::prev(next)->end() == offset) {
      --next;
      next->bytes += bytes;
    } else {
      next = gaps_.insert(next, {offset, bytes});
    }
    const auto after = std::next(next);
    if (after != gaps_.end() && next->end() == after->offset) {
      next->bytes += after->bytes;
      gaps_.erase(after);
    }
    if (gaps_.back().end() == end_) {
      end_ = gaps_.back().offset;
      gaps_.pop_back();
    }
  }

  Bytes end() const { return end_; }  // end of the highest buffer that is alive

 private:
  struct Gap {
    Bytes offset, bytes;
    Bytes end() const { return offset + bytes; }
  };

  void cut(std::vector<Gap>::iterator gap, Bytes offset, Bytes bytes) {
    const Gap above{offset + bytes, gap->end() - offset - bytes};
    gap->bytes = offset - gap->offset;
    if (gap->bytes == 0 && above.bytes == 0) {
      gaps_.erase(gap);
    } else if (gap->bytes == 0) {
      *gap = above;
    } else if (above.bytes > 0) {
      gaps_.insert(std::next(gap), above);
    }
  }
  void raise(Bytes offset, Bytes bytes) {
    if (bytes == 0) return;
    if (offset > end_) gaps_.push_back({end_, offset - end_});
    end_ = offset + bytes;
  }

  std::vector<Gap> gaps_;  // sorted by offset; no two touch. At most as many as live buffers: few.
  Bytes end_;
};

}  // namespace spillway
