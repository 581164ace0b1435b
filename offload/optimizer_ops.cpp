#include "offload/optimizer_ops.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/cpu/ops.h"
#include "offload/block_squares.h"

namespace spillway {

OptimizerOps::OptimizerOps(const UnitGraph& graph, StateForm form, int threads)
    : graph_(graph), rows_(graph), form_(form), pool_(threads, PoolPriority::high) {
  std::int64_t nodes = 0;
  for (const ParameterBlock& block : graph.blocks) nodes = std::max(nodes, SquareCut(0, block.elements, kSquareTask).size());
  // A part that begins anywhere has smaller ones at both ends.
  node_sums_.resize(static_cast<std::size_t>(nodes + square_nodes_of_part(kSquareTask)));
  zeros_.resize(static_cast<std::size_t>(std::max(kAdamWChunk, rows_.row_elements()) * gradient_bytes_per_element(form)));
}

void OptimizerOps::add_gradients(const BoundOp& op) const {
  auto* const sum = op.operands().get<float>(Role::sum);
  const auto* const addend = op.operands().get<const float>(Role::addend);
  for (const TensorPiece& piece : graph_.blocks[op.op->block].pieces)
    ops::accumulate(pool_, piece.elements(), addend + piece.begin, sum + piece.begin);
}

bool OptimizerOps::finish_gradient(const BoundOp& op, double* norm_words) {
  const ParameterBlock& block = graph_.blocks[op.op->block];
  const SquaredGradient gradient{.exact = op.operands().get<const float>(Role::sum),
                                 .rounded = form_ == StateForm::compact ? op.operands().get<BFloat16>(Role::waiting) : nullptr};
  const SquareCut cut(0, block.elements, kSquareTask);
  pool_.parallel_for(cut.size(), [&](std::int64_t task, int) { node_sums_[task] = square_node(block, cut[task], gradient); });
  tree_.clear();
  tree_.add(cut, node_sums_.data());
  return is_finite_sum(norm_words[op.op->block] = tree_.sum());
}

bool OptimizerOps::square_and_update(const BoundOp& op, const AdamWSettings& settings, double* norm_words) {
  const ParameterBlock& block = graph_.blocks[op.op->block];
  const std::int64_t begin = op.op->element_begin, end = op.op->element_end;
  const SquaredGradient gradient{.exact = op.operands().get<const float>(Role::waiting) - begin};
  const SquareCut cut(begin, end, kSquareTask);
  // As much as fits a cache: squared, then updated.
  pool_.parallel_for(cut.size(), [&](std::int64_t task, int) {
    const SquareNode node = cut[task];
    std::array<double, kSquareTask / kAdamWChunk> sums;
    std::size_t count = 0;
    for (std::int64_t at = node.begin; at < node.end(); at += kAdamWChunk) {
      const std::int64_t elements = std::min(kAdamWChunk, node.elements);
      sums[count++] = square_node(block, {.begin = at, .elements = elements}, gradient);
      update_elements(op, settings, {}, at, at + elements);
    }
    node_sums_[task] = ops::tree_sum({sums.data(), count});
  });
  double* const open = norm_words + graph_.blocks.size();
  tree_.clear();
  tree_.add(SquareCut(0, begin), open);
  tree_.add(cut, node_sums_.data());
  if (end == block.elements) return is_finite_sum(norm_words[op.op->block] = tree_.sum());
  std::ranges::transform(tree_.nodes(), open, &SquareNode::sum);
  return true;
}

double OptimizerOps::norm(const double* norm_words) const {
  return std::sqrt(std::accumulate(norm_words, norm_words + graph_.blocks.size(), 0.0));
}

namespace {

template <typename T>
T* as(std::byte* address) {
  return reinterpret_cast<T*>(address);
}
template <typename T>
const T* as(const std::byte* address) {
  return reinterpret_cast<const T*>(address);
}

template <typename Moment>
SplitState<Moment> split_state(std::byte* weight, const std::array<std::byte*, kStateKinds>& state) {
  return {as<BFloat16>(weight), as<std::int16_t>(state[static_cast<int>(StateKind::low)]),
          as<Moment>(state[static_cast<int>(StateKind::m)]), as<Moment>(state[static_cast<int>(StateKind::v)])};
}

Fp32State fp32_state(std::byte* weight, const std::array<std::byte*, kStateKinds>& state) {
  return {as<float>(weight), as<float>(state[static_cast<int>(StateKind::m)]), as<float>(state[static_cast<int>(StateKind::v)])};
}

}  // namespace

void OptimizerOps::step(const AdamWSettings& settings, int block, std::int64_t begin, std::int64_t count,
                        const Elements& at) const {
  const auto& pieces = graph_.blocks[block].pieces;
  const auto piece =
      std::find_if(pieces.begin(), pieces.end(), [&](const TensorPiece& of) { return begin < of.begin + of.elements(); });
  const AdamWRun run{.block = static_cast<std::uint64_t>(block), .begin = begin, .count = count, .decay = piece->decay};
  std::byte* const weight = at.state[static_cast<int>(StateKind::weight)];
  const std::byte* const gradient = at.gradient != nullptr ? at.gradient : zeros_.data();
  switch (form_) {
    case StateForm::exact:
      host_adamw(settings, run, source_of(split_state<float>(weight, at.state)), as<float>(gradient),
                 split_state<float>(at.weight, at.state));
      break;
    case StateForm::compact:
      host_adamw(settings, run, source_of(split_state<BFloat16>(weight, at.state)), as<BFloat16>(gradient),
                 split_state<BFloat16>(at.weight, at.state));
      break;
    case StateForm::fp32:
      host_adamw(settings, run, source_of(fp32_state(weight, at.state)), as<float>(gradient), fp32_state(at.weight, at.state));
      break;
  }
}

void OptimizerOps::update(const BoundOp& op, const AdamWSettings& settings, const TouchedRows& touched,
                          UpdateHashes* hashes) const {
  const std::int64_t elements = op.op->element_end - op.op->element_begin;
  pool_.parallel_for((elements + kAdamWChunk - 1) / kAdamWChunk, [&](std::int64_t task, int) {
    const std::int64_t begin = task * kAdamWChunk, end = std::min(begin + kAdamWChunk, elements);
    if (hashes != nullptr) hashes->take_old(begin, end);
    update_elements(op, settings, touched, op.op->element_begin + begin, op.op->element_begin + end);
    if (hashes != nullptr) hashes->take_new(begin, end);
  });
  if (hashes != nullptr) hashes->finish();
}

// Elements [first, last) of the block: what of each piece is among them, and of each row that is taken apart.
void OptimizerOps::update_elements(const BoundOp& op, const AdamWSettings& settings, const TouchedRows& touched,
                                   std::int64_t first, std::int64_t last) const {
  const int block = op.op->block;
  const Bytes gradient_bytes = gradient_bytes_per_element(form_);
  const BoundOperands& of = op.operands();
  const std::byte* const waiting = of.get(Role::waiting);
  const auto run = [&](std::int64_t begin, std::int64_t end, const std::byte* gradient) {
    const std::int64_t place = begin - op.op->element_begin;  // the operands begin with the update
    Elements at{.gradient = gradient};
    for (const StateArray& array : state_of(graph_.blocks[block], form_)) {
      const auto kind = static_cast<std::size_t>(array.kind);
      at.state[kind] = of.state[kind] + place * array.each();
    }
    at.weight = at.state[static_cast<int>(StateKind::weight)];
    step(settings, block, begin, end - begin, at);
  };
  const auto run_dense = [&](std::int64_t begin, std::int64_t end) {
    if (begin < end) run(begin, end, waiting == nullptr ? nullptr : waiting + (begin - op.op->element_begin) * gradient_bytes);
  };
  for (const TensorPiece& piece : graph_.blocks[block].pieces) {
    std::int64_t begin = std::max(first, piece.begin);
    const std::int64_t end = std::min(last, piece.begin + piece.elements());
    if (!touched.empty() && begin < end) {
      const RowLookup& lookup = rows_.lookup_of(block);
      const std::int64_t H = lookup.row_elements;
      for (const TouchedRow& row : touched.between(lookup.first + begin / H, lookup.first + (end + H - 1) / H)) {
        const std::int64_t row_begin = (row.token - lookup.first) * H, from = std::max(begin, row_begin),
                           to = std::min(end, row_begin + H);
        run_dense(begin, from);
        if (touched.have_gradients()) run(from, to, touched.gradient(row) + (from - row_begin) * gradient_bytes);
        begin = to;
      }
    }
    run_dense(begin, end);
  }
}

}  // namespace spillway
