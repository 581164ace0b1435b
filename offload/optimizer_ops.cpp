#include "offload/optimizer_ops.h"

#include <algorithm>
#include <cmath>

#include "models/cpu/ops.h"
#include "offload/block_squares.h"

namespace spillway {

OptimizerOps::OptimizerOps(const UnitGraph& graph, const Choices& choices, int threads)
    : graph_(graph),
      form_(choices.form),
      sharding_(choices.sharding),
      norm_words_(norm_words(graph, choices)),
      pool_(threads, PoolPriority::high, choices.sharding.ranks) {
  std::int64_t nodes = 0;
  for (const ParameterBlock& block : graph.blocks) nodes = std::max(nodes, SquareCut(0, block.elements, kSquareTask).size());
  // A part that begins anywhere has smaller nodes at both ends.
  node_sums_.resize(static_cast<std::size_t>(nodes + square_nodes_of_part(kSquareTask)));
}

void OptimizerOps::add_gradients(const BoundOp& op) const {
  auto* const sum = op.operands().get<float>(Role::sum);
  const auto* const addend = op.operands().get<const float>(Role::addend);
  for (const TensorPiece& piece : graph_.blocks[op.op->block].pieces)
    ops::accumulate(pool_, piece.elements(), addend + piece.begin, sum + piece.begin);
}

bool OptimizerOps::finish_gradient(const BoundOp& op, double* words) {
  const ParameterBlock& block = graph_.blocks[op.op->block];
  const bool is_part = sharding_.shards_optimizer();
  const std::int64_t begin = op.first_element;
  const std::int64_t end = is_part ? std::min(begin + shard_elements(block.elements, sharding_), block.elements) : block.elements;
  BFloat16* const rounded = form_ == StateForm::compact ? op.operands().get<BFloat16>(Role::waiting) - begin : nullptr;
  const SquaredGradient gradient{.exact = op.operands().get<const float>(Role::sum) - begin, .rounded = rounded};
  const SquareCut cut(begin, end, kSquareTask);
  pool_.parallel_for(cut.size(), [&](std::int64_t task, int) { node_sums_[task] = square_node(block, cut[task], gradient); });
  tree_.clear();
  tree_.add(cut, node_sums_.data());
  double* const words_of_block = words + norm_words_[op.op->block];
  if (is_part) {
    std::ranges::transform(tree_.nodes(), words_of_block, &SquareNode::sum);
  } else {
    *words_of_block = tree_.sum();
  }
  return is_finite_sum(tree_.sum());
}

bool OptimizerOps::square_and_update(const BoundOp& op, const AdamWSettings& settings, double* words) {
  const ParameterBlock& block = graph_.blocks[op.op->block];
  const std::int64_t begin = op.op->element_begin, end = op.op->element_end;
  const SquaredGradient gradient{.exact = op.operands().get<const float>(Role::waiting) - begin};
  const SquareCut cut(begin, end, kSquareTask);
  // Each task squares and then updates as many elements as fit a cache.
  pool_.parallel_for(cut.size(), [&](std::int64_t task, int) {
    const SquareNode node = cut[task];
    std::array<double, kSquareTask / kAdamWChunk> sums;
    std::size_t count = 0;
    for (std::int64_t at = node.begin; at < node.end(); at += kAdamWChunk) {
      const std::int64_t elements = std::min(kAdamWChunk, node.elements);
      sums[count++] = square_node(block, {.begin = at, .elements = elements}, gradient);
      update_elements(op, settings, at, at + elements);
    }
    node_sums_[task] = ops::tree_sum({sums.data(), count});
  });
  double* const open = words + norm_words_.back();
  tree_.clear();
  tree_.add(SquareCut(0, begin), open);
  tree_.add(cut, node_sums_.data());
  if (end == block.elements) return is_finite_sum(words[norm_words_[op.op->block]] = tree_.sum());
  std::ranges::transform(tree_.nodes(), open, &SquareNode::sum);
  return true;
}

// A part's words are the sums of its largest nodes.
double OptimizerOps::sum_of_block(const double* words, int block) {
  const double* const of_block = words + norm_words_[block];
  if (!sharding_.shards_optimizer()) return *of_block;
  tree_.clear();
  for (int member = 0; member < sharding_.group; ++member) {
    const Shard part = part_of(graph_.blocks[block].elements, sharding_, member);
    tree_.add(SquareCut(part.begin, part.end()), of_block + member * norm_words_.back());
  }
  return tree_.sum();
}

double OptimizerOps::norm(const double* words) {
  double sum = 0;
  for (int block = 0; block < std::ssize(graph_.blocks); ++block) {
    if (!graph_.blocks[block].frozen) sum += sum_of_block(words, block);
  }
  return std::sqrt(sum);
}

int OptimizerOps::block_not_finite(const double* words) {
  return last_block_not_finite(graph_, [&](int block) { return sum_of_block(words, block); });
}

namespace {

template <typename T>
T* as(std::byte* address) {
  return reinterpret_cast<T*>(address);
}
template <typename Moment>
SplitState<Moment> split_state(const std::array<std::byte*, kStateKinds>& state) {
  const auto at = [&](StateKind kind) { return state[static_cast<std::size_t>(kind)]; };
  return {as<BFloat16>(at(StateKind::weight)), as<std::int16_t>(at(StateKind::low)), as<Moment>(at(StateKind::m)),
          as<Moment>(at(StateKind::v))};
}

Fp32State fp32_state(const std::array<std::byte*, kStateKinds>& state) {
  const auto at = [&](StateKind kind) { return as<float>(state[static_cast<std::size_t>(kind)]); };
  return {at(StateKind::weight), at(StateKind::m), at(StateKind::v)};
}

Fp16State fp16_state(const std::array<std::byte*, kStateKinds>& state) {
  const auto at = [&](StateKind kind) { return as<float>(state[static_cast<std::size_t>(kind)]); };
  return {as<Float16>(state[static_cast<std::size_t>(StateKind::weight)]), at(StateKind::master), at(StateKind::m),
          at(StateKind::v)};
}

}  // namespace

// Calls visit(begin, end) for the update's elements, chunk by chunk, between the two hashes of their state.
template <typename Visit>
void OptimizerOps::for_each_chunk(const BoundOp& op, UpdateHashes* hashes, const Visit& visit) const {
  const std::int64_t elements = op.op->element_end - op.op->element_begin;
  pool_.parallel_for((elements + kAdamWChunk - 1) / kAdamWChunk, [&](std::int64_t task, int) {
    const std::int64_t begin = task * kAdamWChunk, end = std::min(begin + kAdamWChunk, elements);
    if (hashes != nullptr) hashes->take_old(begin, end);
    visit(begin, end);
    if (hashes != nullptr) hashes->take_new(begin, end);
  });
  if (hashes != nullptr) hashes->finish();
}

void OptimizerOps::update(const BoundOp& op, const AdamWSettings& settings, UpdateHashes* hashes) const {
  const std::int64_t first = op.first_element + op.op->element_begin;
  for_each_chunk(op, hashes,
                 [&](std::int64_t begin, std::int64_t end) { update_elements(op, settings, first + begin, first + end); });
}

void OptimizerOps::hash_as_it_is(const BoundOp& op, UpdateHashes& hashes) const {
  for_each_chunk(op, &hashes, [](std::int64_t, std::int64_t) {});
}

// Updates elements [first, last) of the block on the calling thread: the part of each piece that is among them.
void OptimizerOps::update_elements(const BoundOp& op, const AdamWSettings& settings, std::int64_t first,
                                   std::int64_t last) const {
  const ParameterBlock& block = graph_.blocks[op.op->block];
  const BoundOperands& of = op.operands();
  for (const TensorPiece& piece : block.pieces) {
    const std::int64_t begin = std::max(first, piece.begin), end = std::min(last, piece.begin + piece.elements());
    if (begin >= end) continue;
    const std::int64_t place = begin - op.first_element - op.op->element_begin;  // operands begin with the update's first element
    std::array<std::byte*, kStateKinds> state{};
    for (const StateArray& array : state_of(block, form_)) {
      const auto kind = static_cast<std::size_t>(array.kind);
      state[kind] = of.state[kind] + place * array.each();
    }
    const AdamWRun run{
        .block = static_cast<std::uint64_t>(op.op->block), .begin = begin, .count = end - begin, .decay = piece.decay};
    std::byte* const gradient = of.get(Role::waiting) + place * gradient_bytes_per_element(form_);
    switch (form_) {
      case StateForm::exact: {
        const auto split = split_state<float>(state);
        host_adamw(settings, run, source_of(split), as<float>(gradient), split);
        break;
      }
      case StateForm::compact: {
        const auto split = split_state<BFloat16>(state);
        host_adamw(settings, run, source_of(split), as<BFloat16>(gradient), split);
        break;
      }
      case StateForm::fp32: {
        const Fp32State whole = fp32_state(state);
        host_adamw(settings, run, source_of(whole), as<float>(gradient), whole);
        break;
      }
      case StateForm::fp16: {
        const Fp16State both = fp16_state(state);
        host_adamw(settings, run, source_of(both), as<float>(gradient), both);
        break;
      }
    }
  }
}

}  // namespace spillway
