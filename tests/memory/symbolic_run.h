// Runs a plan's programs, operation by operation, on real bytes: an operation writes a hash of what it is and of what it reads,
// and moves copy. So two plans of the same arithmetic leave the same bytes exactly when every operation finds what the last one
// wrote, wherever bytes rest and whichever way they came.
// Not here: lanes, which waits keep in this order (byte_order.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "memory/plan/plan.h"

namespace spillway {

class SymbolicRun {
  friend class SymbolicRanks;

 public:
  SymbolicRun(const Plan& plan, const UnitGraph& graph, int rank = 0) : plan_(plan), graph_(graph), rank_(rank) {
    for (const Tier tier : kAll<Tier>) bytes_[tier].assign(static_cast<std::size_t>(plan.peak[tier]), 0xA5);
    for (const Buffer& buffer : plan.resident) two_slots_ |= buffer.slots == 2;
    for (int block = 0; block < std::ssize(graph.blocks); ++block) {
      for (const RestingArray& of : plan.blocks[static_cast<std::size_t>(block)].state) {
        const auto array = state(block, of);
        fill(hash_of(17, static_cast<std::uint64_t>(block * kStateKinds + static_cast<int>(of.kind))), array.data(), array.size(),
             shard_of(block, of.kind).begin * of.each());
      }
    }
  }
  virtual ~SymbolicRun() = default;

  void step() {
    for_each_turn([this](TurnSet turn, bool updates) { run(turn, updates); });
  }
  void flush() {
    for_flush([this](TurnSet turn, bool updates) { run(turn, updates); });
  }

  // This rank's elements of the array, which are all of them where it is not sharded.
  Shard shard_of(int block, StateKind kind) const {
    return shard_at_rest(plan_.choices.sharding, graph_.blocks[static_cast<std::size_t>(block)], kind, rank_);
  }
  std::span<std::uint8_t> state(int block, const RestingArray& array) {
    const Buffer& buffer = plan_.resident[static_cast<std::size_t>(array.buffer)];
    const Bytes bytes = shard_of(block, array.kind).elements * array.each();
    return {at(buffer, buffer.slots == 2 ? slot_ : 0, 0), static_cast<std::size_t>(bytes)};
  }

 protected:
  // Visit the runs of a step, and of a flush: begin_run(), then perform() each operation that is in the turn, then end_run().
  template <typename Visit>
  void for_each_turn(Visit&& visit) {
    const bool updates = !defers_all(plan_.choices) || waits_;
    const int turns = turns_of(plan_.choices), update_turn = defers_all(plan_.choices) ? 0 : turns - 1;
    for (int turn = 0; turn < turns; ++turn) visit(begin_turn(turn), updates && turn == update_turn);
    end_step();
  }
  template <typename Visit>
  void for_flush(Visit&& visit) {
    if (waits_) visit(kFlush, true);
    waits_ = false;
  }
  TurnSet begin_turn(int turn) {
    turn_ = turn;
    return turn_set(turn, turns_of(plan_.choices), waits_);
  }
  void end_step() {
    turn_ = 0;
    waits_ = defers_any(plan_.choices);
  }
  void begin_run(bool updates) { slot_after_ = two_slots_ && updates ? 1 - slot_ : slot_; }
  void end_run() { slot_ = slot_after_; }
  void perform(const Op& op) {
    if (op.kind == OpKind::move) {
      move(plan_.step, op);
    } else {
      compute(plan_.step, op);
    }
  }

  static std::uint64_t hash_of(std::uint64_t a, std::uint64_t b) {
    std::uint64_t x = a * 0x9e3779b97f4a7c15 + b;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }
  static std::uint64_t hash_bytes(std::uint64_t seed, const std::uint8_t* data, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; i += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, data + i, std::min<std::size_t>(8, bytes - i));
      seed = hash_of(seed, word);
    }
    return seed;
  }
  // `first`: the place of data's first byte in the content.
  static void fill(std::uint64_t seed, std::uint8_t* data, std::size_t bytes, Bytes first = 0) {
    for (std::size_t i = 0; i < bytes; i += 8) {
      const std::uint64_t word = hash_of(seed, i + static_cast<std::uint64_t>(first));
      std::memcpy(data + i, &word, std::min<std::size_t>(8, bytes - i));
    }
  }

  std::uint8_t* at(const Buffer& buffer, int slot, Bytes begin) {
    return bytes_[buffer.tier].data() + buffer.offset + slot * buffer.bytes + begin;
  }
  std::uint8_t* at(const Program& program, const Operand& operand) {
    const Buffer& buffer = buffer_of(plan_, program, operand.buffer);
    const int slot = buffer.slots < 2 ? 0 : operand.version == Version::before ? slot_ : slot_after_;
    return at(buffer, slot, operand.begin);
  }

  void run(TurnSet turn, bool updates) {
    begin_run(updates);
    for (const Op& op : plan_.step.ops) {
      if ((op.when & turn) != 0) perform(op);
    }
    end_run();
  }

  void move(const Program& program, const Op& op) {
    for (std::size_t i = 0; i + 1 < op.operands.size(); i += 2) {
      const Operand &from = op.operands[i], &to = op.operands[i + 1];
      std::memmove(at(program, to), at(program, from), static_cast<std::size_t>(from.bytes));
    }
  }

  int first_micro_batch(const Op& op) const { return turn_ * plan_.choices.group + op.strip.first; }
  std::uint64_t name_of_work(const Op& op) const {
    std::uint64_t name = hash_of(static_cast<std::uint64_t>(op.kind), static_cast<std::uint64_t>(op.unit + 1));
    name = hash_of(name, static_cast<std::uint64_t>(op.block + 1));
    const int of_all = rank_ * plan_.choices.micro_batches + first_micro_batch(op);
    return op.strip.first < 0 ? name : hash_of(name, static_cast<std::uint64_t>(of_all + 1));
  }

  // Updated bytes enter only their own new value.
  virtual void compute(const Program& program, const Op& op) {
    std::uint64_t inputs = name_of_work(op);
    for (auto operand = op.operands.begin(); operand != op.operands.end(); ++operand) {
      if (operand->buffer < 0 || operand->access != Access::read) continue;
      const auto is_same = [&](const Operand& other) { return other.buffer == operand->buffer && other.access == Access::write; };
      if (std::any_of(op.operands.begin(), operand, is_same)) continue;  // the operation itself has written it
      inputs = hash_bytes(inputs, at(program, *operand), static_cast<std::size_t>(operand->bytes));
    }
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      const Operand& operand = op.operands[i];
      if (operand.buffer < 0 || operand.access == Access::read) continue;
      std::uint8_t* data = at(program, operand);
      const auto bytes = static_cast<std::size_t>(operand.bytes);
      std::uint64_t content = hash_of(inputs, i);
      // The first turn's first strip begins the sums that the others go on with.
      const bool begins = op.kind == OpKind::backward && operand.role == Role::gradient && first_micro_batch(op) == 0;
      if (operand.access == Access::update && !begins) content = hash_bytes(content, data, bytes);
      fill(content, data, bytes);
    }
  }

  const Plan& plan_;
  const UnitGraph& graph_;
  const int rank_;
  By<Tier, std::vector<std::uint8_t>> bytes_;
  bool two_slots_ = false, waits_ = false;
  int slot_ = 0, slot_after_ = 0, turn_ = 0;
};

}  // namespace spillway
