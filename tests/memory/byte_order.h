// Finds operations of a program that must be in order, byte by byte, and are not: it looks at every pair of operations, over two
// rounds where the program repeats. Slow and simple, and on purpose without any code by which the planner derives waits or
// validate() checks them.
//
// The order that the protocol gives (memory/plan/program.h): an operation starts when all operations that it waits for are
// complete. On most lanes it starts when the lane's last one is complete; on an NVMe lane when that one has started, and it is
// complete after it. The limit on moves under way there is not counted on.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "memory/plan/plan.h"

namespace spillway {

// A set of operations, over all rounds.
class OperationSet {
 public:
  explicit OperationSet(std::size_t most = 0) : words_((most + 63) / 64) {}
  void add(std::size_t op) { words_[op / 64] |= std::uint64_t{1} << op % 64; }
  void add(const OperationSet& others) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= others.words_[i];
  }
  // The first operation of this set that is not in `others`; -1: all are.
  int first_not_in(const OperationSet& others) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      if (const std::uint64_t left = words_[i] & ~others.words_[i]; left != 0)
        return static_cast<int>(i * 64) + std::countr_zero(left);
    }
    return -1;
  }
  int size() const {
    int count = 0;
    for (const std::uint64_t word : words_) count += std::popcount(word);
    return count;
  }

 private:
  std::vector<std::uint64_t> words_;
};

class ByteOrder {
 public:
  ByteOrder(const Plan& plan, const Program& program, int rounds) : plan_(plan), program_(program), rounds_(rounds) {
    find_conflicts();
  }

  // A pair of operations that touch the same byte, one of them writing, and that nothing keeps in order; ids count over all
  // rounds.
  std::optional<std::pair<int, int>> unordered() const { return unordered(program_.ops); }
  // The same, with other waits between the same operations.
  std::optional<std::pair<int, int>> unordered(const std::vector<Op>& ops) const {
    const std::vector<OperationSet> complete = complete_at_start(ops);
    for (std::size_t id = 0; id < complete.size(); ++id) {
      if (const int other = conflicts_[id].first_not_in(complete[id]); other >= 0) return std::pair(other, static_cast<int>(id));
    }
    return std::nullopt;
  }
  std::string text(std::pair<int, int> pair) const {
    const auto one = [&](int id) {
      const Op& op = program_.ops[static_cast<std::size_t>(id) % program_.ops.size()];
      return fmt::format("{} ({} on {})", id, name_of(op), name_of(op.lane));
    };
    return fmt::format("{} and {} of {} operations", one(pair.first), one(pair.second), program_.ops.size());
  }
  int pairs() const {
    int count = 0;
    for (const OperationSet& before : conflicts_) count += before.size();
    return count;
  }

 private:
  struct Touch {
    std::size_t op = 0;
    Bytes begin = 0, end = 0;
    bool writes = false;
  };

  std::size_t total() const { return program_.ops.size() * static_cast<std::size_t>(rounds_); }

  // The touches of each tier. Of two-slot state both slots count, whichever is meant.
  By<Tier, std::vector<Touch>> touches() const {
    By<Tier, std::vector<Touch>> touches;
    for (std::size_t id = 0; id < total(); ++id) {
      for (const Operand& operand : program_.ops[id % program_.ops.size()].operands) {
        if (operand.buffer < 0) continue;
        const Buffer& buffer = buffer_of(plan_, program_, operand.buffer);
        for (int slot = 0; slot < buffer.slots; ++slot) {
          const Bytes begin = buffer.offset + slot * buffer.bytes + operand.begin;
          touches[buffer.tier].push_back({id, begin, begin + operand.bytes, operand.access != Access::read});
        }
      }
    }
    return touches;
  }

  // Between neighbouring begins and ends of accesses all bytes are touched alike, so one byte stands for each such stretch.
  void find_conflicts() {
    conflicts_.assign(total(), OperationSet(total()));
    for (const std::vector<Touch>& tier : touches()) {
      std::map<Bytes, std::vector<const Touch*>> at;  // a byte of each stretch, and its touches
      for (const Touch& touch : tier) at[touch.begin], at[touch.end];
      for (const Touch& touch : tier) {
        for (auto byte = at.find(touch.begin); byte->first < touch.end; ++byte) byte->second.push_back(&touch);
      }
      for (const auto& [byte, touching] : at) {
        for (const Touch* a : touching) {
          for (const Touch* b : touching) {
            if (a->op < b->op && (a->writes || b->writes)) conflicts_[b->op].add(a->op);
          }
        }
      }
    }
  }

  // [operations] those that are complete when each one starts.
  std::vector<OperationSet> complete_at_start(const std::vector<Op>& ops) const {
    std::vector<OperationSet> at_start(total(), OperationSet(total())), at_end = at_start;
    By<Lane, std::optional<std::size_t>> last;
    for (std::size_t id = 0; id < total(); ++id) {
      const std::size_t round = id / ops.size();
      const Op& op = ops[id % ops.size()];
      for (const Wait& wait : op.waits) {
        if (wait.turn < 0 && round == 0) continue;  // nothing before the first round is looked at
        at_start[id].add(at_end[(wait.turn < 0 ? round - 1 : round) * ops.size() + static_cast<std::size_t>(wait.op)]);
      }
      auto& before = last[op.lane];
      const bool overlaps = op.lane == Lane::nvme_read || op.lane == Lane::nvme_write;
      if (before) at_start[id].add(overlaps ? at_start[*before] : at_end[*before]);
      at_end[id] = at_start[id];
      at_end[id].add(id);
      if (before && overlaps) at_end[id].add(at_end[*before]);
      before = id;
    }
    return at_start;
  }

  const Plan& plan_;
  const Program& program_;
  const int rounds_;
  std::vector<OperationSet> conflicts_;  // [operations] those before each one that share a byte with it
};

}  // namespace spillway
