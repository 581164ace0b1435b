// Runs a plan's step on several ranks in lockstep, on symbolic bytes (symbolic_run.h): operations of the network lane copy and
// add between ranks, and updates work element by element, so that a rank that has a part of a block computes what one that has
// all of it computes there. A sum of ranks is a hash that depends on the tree in which it is added.
#pragma once

#include <bit>
#include <memory>
#include <vector>

#include "memory/base/error.h"
#include "memory/plan/square_tree.h"
#include "tests/memory/symbolic_run.h"

namespace spillway {

class SymbolicRank : public SymbolicRun {
 public:
  using SymbolicRun::SymbolicRun;

 private:
  friend class SymbolicRanks;
  static constexpr std::int64_t kChunk = kBlockElements;

  const Operand* find(const Op& op, Role role) const {
    const auto found = std::ranges::find(op.operands, role, &Operand::role);
    return found == op.operands.end() ? nullptr : &*found;
  }
  std::uint8_t* bytes_of(const Op& op, Role role) {
    const Operand* const operand = find(op, role);
    return operand == nullptr ? nullptr : at(plan_.step, *operand);
  }
  const ParameterBlock& block_of(const Op& op) const { return graph_.blocks[static_cast<std::size_t>(op.block)]; }
  // The elements of the block whose gradient this rank finishes and applies.
  Shard part(const Op& op) const { return shard_of(op.block, StateKind::m); }

  void compute(const Program& program, const Op& op) override {
    switch (op.kind) {
      case OpKind::loss: return sum_losses(op);
      case OpKind::gradient_finish: return finish(op);
      case OpKind::norm: return take_norm(op);
      case OpKind::update: return update(op);
      default: return SymbolicRun::compute(program, op);
    }
  }

  void sum_losses(const Op& op) {
    const Role of_all = plan_.choices.sharding.ranks > 1 ? Role::whole : Role::losses;
    const Bytes own = plan_.choices.micro_batches * kMicroBatchWordsBytes;
    const auto all = static_cast<std::size_t>(plan_.choices.sharding.ranks * own);
    fill(hash_bytes(3, bytes_of(op, of_all), all), bytes_of(op, Role::losses) + own, sizeof(double));
  }

  // The block's squares: of a stretch, some number that its bytes determine.
  void finish(const Op& op) {
    const Shard mine = part(op);
    const std::uint8_t* const sum = bytes_of(op, Role::sum);
    std::uint8_t* const waiting = bytes_of(op, Role::waiting);
    SquareTree tree;
    for (std::int64_t at = 0; at < mine.elements; at += kSquareStretch) {
      const std::uint64_t hash = hash_bytes(5, sum + 4 * at, 4 * kSquareStretch);
      if (waiting != nullptr) fill(hash, waiting + 2 * at, 2 * kSquareStretch);
      tree.add({mine.begin + at, kSquareStretch, static_cast<double>(hash % 1'000'003) / 7});
    }
    auto* const words = reinterpret_cast<double*>(bytes_of(op, Role::squares));
    if (!plan_.choices.sharding.shards_optimizer()) {
      *words = tree.sum();
      return;
    }
    SPILLWAY_CHECK(std::ssize(tree.nodes()) <= square_nodes_of_part(block_of(op).elements), "{} nodes", tree.nodes().size());
    std::ranges::transform(tree.nodes(), words, &SquareNode::sum);
  }

  void take_norm(const Op& op) {
    const auto* const words = reinterpret_cast<const double*>(bytes_of(op, Role::squares));
    const std::vector<std::int64_t> begin = norm_words(graph_, plan_.choices);
    const Sharding& sharding = plan_.choices.sharding;
    std::uint64_t norm = 7;
    for (std::size_t block = 0; block < graph_.blocks.size(); ++block) {
      if (graph_.blocks[block].frozen) continue;
      SquareTree tree;
      for (int member = 0; member < sharding.group && sharding.shards_optimizer(); ++member) {
        const Shard of = part_of(graph_.blocks[block].elements, sharding, member);
        tree.add(SquareCut(of.begin, of.end()), words + member * begin.back() + begin[block]);
      }
      const double sum = sharding.shards_optimizer() ? tree.sum() : words[begin[block]];
      norm = hash_of(norm, std::bit_cast<std::uint64_t>(sum));
    }
    fill(norm, bytes_of(op, Role::factor), 2 * sizeof(double));
  }

  void update(const Op& op) {
    const Shard mine = part(op);
    std::uint64_t inputs = hash_bytes(11, bytes_of(op, Role::loss), sizeof(double));
    if (find(op, Role::factor) != nullptr) inputs = hash_bytes(inputs, bytes_of(op, Role::factor), 2 * sizeof(double));
    const std::int64_t end = std::min(op.element_end, mine.elements);
    for (std::int64_t from = op.element_begin; from < end; from += kChunk) {
      std::uint64_t hash = hash_of(inputs, static_cast<std::uint64_t>(mine.begin + from));
      const std::int64_t place = from - op.element_begin, elements = std::min(kChunk, end - from);
      const auto visit = [&](const auto& take) {
        for (const Operand& operand : op.operands) {
          const bool is_state = operand.role == Role::state;
          if (!is_state && operand.role != Role::waiting) continue;
          const Bytes each = is_state ? plan_.blocks[static_cast<std::size_t>(op.block)].find(operand.kind)->each()
                                      : gradient_bytes_per_element(plan_.choices.form);
          const bool is_whole = is_state && operand.kind == StateKind::weight && updates_part_of_weight(plan_.choices.sharding);
          take(operand, at(plan_.step, operand) + each * (is_whole ? mine.begin + from : place),
               static_cast<std::size_t>(each * elements));
        }
      };
      visit([&](const Operand&, const std::uint8_t* data, std::size_t bytes) { hash = hash_bytes(hash, data, bytes); });
      visit([&](const Operand& operand, std::uint8_t* data, std::size_t bytes) {
        if (operand.role == Role::state) fill(hash_of(hash, static_cast<std::uint64_t>(operand.kind)), data, bytes);
      });
    }
  }
};

class SymbolicRanks {
 public:
  SymbolicRanks(const Plan& plan, const UnitGraph& graph) : plan_(plan), graph_(graph) {
    for (int rank = 0; rank < plan.choices.sharding.ranks; ++rank)
      ranks_.push_back(std::make_unique<SymbolicRank>(plan, graph, rank));
  }

  void step() {
    const int turns = turns_of(plan_.choices), update_turn = defers_all(plan_.choices) ? 0 : turns - 1;
    const bool updates = !defers_all(plan_.choices) || ranks_.front()->waits_;
    for (int turn = 0; turn < turns; ++turn) {
      TurnSet set = 0;
      for (const auto& rank : ranks_) set = rank->begin_turn(turn);
      run(set, updates && turn == update_turn);
    }
    for (const auto& rank : ranks_) rank->end_step();
  }
  void flush() {
    if (ranks_.front()->waits_) run(kFlush, true);
    for (const auto& rank : ranks_) rank->waits_ = false;
  }

  // All arrays, whole, put together from parts; nothing where ranks disagree on an element that several have.
  std::vector<std::vector<std::uint8_t>> state() {
    std::vector<std::vector<std::uint8_t>> arrays;
    for (int block = 0; block < std::ssize(graph_.blocks); ++block) {
      for (const RestingArray& of : plan_.blocks[static_cast<std::size_t>(block)].state) {
        auto& whole = arrays.emplace_back(graph_.blocks[static_cast<std::size_t>(block)].elements * of.each());
        for (int rank = 0; rank < std::ssize(ranks_); ++rank) {
          const auto part = ranks_[static_cast<std::size_t>(rank)]->state(block, of);
          const Bytes begin = ranks_[static_cast<std::size_t>(rank)]->shard_of(block, of.kind).begin * of.each();
          const bool is_first = rank < plan_.choices.sharding.group && (rank == 0 || std::ssize(part) < std::ssize(whole));
          if (is_first) std::ranges::copy(part, whole.begin() + begin);
          if (!std::ranges::equal(part, std::span(whole).subspan(static_cast<std::size_t>(begin), part.size()))) return {};
        }
      }
    }
    return arrays;
  }

 private:
  void run(TurnSet turn, bool updates) {
    for (const auto& rank : ranks_) rank->begin_run(updates);
    for (const Op& op : plan_.step.ops) {
      if ((op.when & turn) == 0) continue;
      if (op.lane == Lane::network) {
        exchange(op);
      } else {
        for (const auto& rank : ranks_) rank->perform(op);
      }
    }
    for (const auto& rank : ranks_) rank->end_run();
  }

  void exchange(const Op& op) {
    if (op.kind == OpKind::reduce) return reduce(op);
    if (op.block < 0) return gather_words(op);
    gather(op);
  }

  void gather_words(const Op& op) {
    const SymbolicRank& any = *ranks_.front();
    const auto each = static_cast<std::size_t>(any.find(op, Role::part)->bytes);
    const int count = static_cast<int>(any.find(op, Role::whole)->bytes / any.find(op, Role::part)->bytes);
    for (int rank = 0; rank < std::ssize(ranks_); ++rank) {
      for (int member = 0; member < count; ++member) {
        std::memcpy(ranks_[static_cast<std::size_t>(rank)]->bytes_of(op, Role::whole) + each * static_cast<std::size_t>(member),
                    ranks_[static_cast<std::size_t>(rank / count * count + member)]->bytes_of(op, Role::part), each);
      }
    }
  }

  void gather(const Op& op) {
    const Sharding& sharding = plan_.choices.sharding;
    const Bytes each = plan_.blocks[static_cast<std::size_t>(op.block)].weight().each();
    for (int rank = 0; rank < std::ssize(ranks_); ++rank) {
      for (int member = 0; member < sharding.group; ++member) {
        SymbolicRank& from = *ranks_[static_cast<std::size_t>(rank / sharding.group * sharding.group + member)];
        const Shard part = part_of(from.block_of(op).elements, sharding, member);
        const Bytes begin = part.begin * each;
        const std::uint8_t* source = from.bytes_of(op, Role::part);
        if (source == nullptr) source = from.bytes_of(op, Role::whole) + begin;
        std::memmove(ranks_[static_cast<std::size_t>(rank)]->bytes_of(op, Role::whole) + begin, source,
                     static_cast<std::size_t>(part.elements * each));
      }
    }
  }

  // The tree over ranks: split at the largest power of two.
  static std::uint64_t sum(const std::vector<std::uint64_t>& of, std::size_t first, std::size_t count) {
    if (count == 1) return of[first];
    const std::size_t left = std::bit_floor(count - 1);
    return SymbolicRun::hash_of(sum(of, first, left), sum(of, first + left, count - left));
  }

  void reduce(const Op& op) {
    const auto bytes = static_cast<std::size_t>(graph_.blocks[static_cast<std::size_t>(op.block)].elements * 4);
    std::vector<std::uint8_t> total(bytes);
    std::vector<std::uint64_t> words(ranks_.size());
    for (std::size_t at = 0; at < bytes; at += 8) {
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        std::memcpy(&words[rank], ranks_[rank]->bytes_of(op, Role::whole) + at, 8);
      const std::uint64_t word = ranks_.size() == 1 ? words[0] : sum(words, 0, words.size());
      std::memcpy(total.data() + at, &word, 8);
    }
    for (const auto& rank : ranks_) {
      const Shard part = rank->part(op);
      std::uint8_t* to = rank->bytes_of(op, Role::part);
      if (to == nullptr) to = rank->bytes_of(op, Role::whole);
      std::memcpy(to, total.data() + 4 * part.begin, static_cast<std::size_t>(4 * part.elements));
    }
  }

  const Plan& plan_;
  const UnitGraph& graph_;
  std::vector<std::unique_ptr<SymbolicRank>> ranks_;
};

}  // namespace spillway
