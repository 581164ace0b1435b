// A record of the operations that touched each byte last. Waits are derived from it and checked against it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <vector>

#include "memory/plan/plan.h"

namespace spillway {

// The last operations that touched a range of bytes. Lanes run in order, so the latest reader of each lane stands for all of its
// readers.
struct Touched {
  Bytes end = 0;
  int writer = -1;
  By<Lane, int> readers;  // operation + 1; 0: none
};

// A range of bytes, cut where accesses cut it.
class AccessMap {
 public:
  // Calls conflict(op) for every operation that must come before an access of [begin, end), then records it.
  template <typename Conflict>
  void access(Bytes begin, Bytes end, bool writes, int op, Lane lane, Conflict&& conflict) {
    if (begin >= end) return;
    auto at = ranges_.lower_bound(begin);
    // Fast path: most accesses are of exactly one range that was accessed before.
    if (at != ranges_.end() && at->first == begin && at->second.end == end) {
      touch(at->second, writes, op, lane, conflict);
      return;
    }
    split(begin);
    split(end);
    at = ranges_.lower_bound(begin);
    Bytes covered = begin;
    while (covered < end) {
      if (at == ranges_.end() || at->first > covered) {  // never touched
        const Bytes gap_end = at == ranges_.end() ? end : std::min(end, at->first);
        Touched fresh{.end = gap_end};
        at = std::next(ranges_.emplace_hint(at, covered, fresh));
        record(std::prev(at)->second, writes, op, lane);
        covered = gap_end;
        continue;
      }
      touch(at->second, writes, op, lane, conflict);
      covered = at->second.end;
      ++at;
    }
    if (writes) merge(begin, end, op);
  }

 private:
  template <typename Conflict>
  static void touch(Touched& touched, bool writes, int op, Lane lane, Conflict& conflict) {
    if (touched.writer >= 0) conflict(touched.writer);
    if (writes) {
      for (const int reader : touched.readers) {
        if (reader > 0) conflict(reader - 1);
      }
    }
    record(touched, writes, op, lane);
  }
  static void record(Touched& touched, bool writes, int op, Lane lane) {
    if (writes) {
      touched.writer = op;
      touched.readers = {};
    } else {
      touched.readers[lane] = op + 1;
    }
  }
  void split(Bytes at) {
    auto after = ranges_.upper_bound(at);
    if (after == ranges_.begin()) return;
    auto range = std::prev(after);
    if (range->first == at || range->second.end <= at) return;
    Touched upper = range->second;
    range->second.end = at;
    ranges_.emplace_hint(after, at, upper);
  }
  // Makes a written range one entry again: without this the map would only ever grow.
  void merge(Bytes begin, Bytes end, int op) {
    auto first = ranges_.find(begin);
    first->second.end = end;
    first->second.writer = op;
    first->second.readers = {};
    ranges_.erase(std::next(first), ranges_.lower_bound(end));
  }
  std::map<Bytes, Touched> ranges_;
};

// Access maps of all bytes of a plan. A resident buffer shares its bytes with nothing, so it has a small map of its own, where
// look-ups are short.
class AccessBook {
 public:
  AccessBook(const Plan& plan, const Program& program) : plan_(plan), program_(program), maps_(plan.resident.size()) {}

  // Calls conflict(op) for every operation that must come before the operand's access, then records it.
  template <typename Conflict>
  void access(const Operand& operand, int op, Lane lane, Conflict&& conflict) {
    const bool resident = operand.buffer < static_cast<int>(plan_.resident.size());
    const Buffer& buffer = buffer_of(plan_, program_, operand.buffer);
    AccessMap& map = resident ? maps_[static_cast<std::size_t>(operand.buffer)] : others_[buffer.tier];
    // Both slots of a buffer count as one: the bytes read from one slot are older than those written to the other.
    const Bytes begin = buffer.offset + operand.begin;
    map.access(begin, begin + operand.bytes, operand.access != Access::read, op, lane, conflict);
  }

 private:
  const Plan& plan_;
  const Program& program_;
  std::vector<AccessMap> maps_;  // [resident buffers]
  By<Tier, AccessMap> others_;
};

}  // namespace spillway
