#include "offload/cuda/kernel_optimizer.cuh"

#include <algorithm>
#include <vector>

#include "memory/base/error.h"
#include "offload/cuda/add_gradients.cuh"
#include "offload/cuda/squares.cuh"

namespace spillway::cuda {
namespace {

std::int64_t stretches_of(std::int64_t elements) { return (elements + kSquareStretch - 1) / kSquareStretch; }

template <typename T>
T* as(std::byte* address) {
  return reinterpret_cast<T*>(address);
}

}  // namespace

StreamOptimizer::StreamOptimizer(Runtime& runtime, Queue& queue, const UnitGraph& graph, StateForm form)
    : queue_(queue), graph_(graph), form_(form) {
  std::vector<CountedRange> ranges;
  std::int64_t most = 1;
  for (const ParameterBlock& block : graph.blocks) {
    ranges_begin_.push_back(static_cast<Bytes>(ranges.size() * sizeof(CountedRange)));
    for (const TensorPiece& piece : block.pieces) ranges.push_back({piece.begin, piece.begin + piece.elements()});
    most = std::max(most, stretches_of(block.elements));
  }
  const auto of_ranges = static_cast<Bytes>(ranges.size() * sizeof(CountedRange));
  nodes_begin_ = round_up(of_ranges, 256);
  sums_begin_ = nodes_begin_ + round_up(most * static_cast<Bytes>(sizeof(double)), 256);
  const Bytes all = sums_begin_ + (scratch_of_sum(most) + 1) * static_cast<Bytes>(sizeof(double));
  memory_.emplace(runtime.allocate(Tier::device, all, "squares of gradients"));
  runtime.copy(memory_->data(), reinterpret_cast<const std::byte*>(ranges.data()), of_ranges);
}

void StreamOptimizer::add_gradients(const BoundOp& op) {
  device_add_gradients(queue_, graph_.blocks[static_cast<std::size_t>(op.op->block)].elements,
                       op.operands().get<const float>(Role::addend), op.operands().get<float>(Role::sum));
}

void StreamOptimizer::finish_gradient(const BoundOp& op, double* square) {
  const auto index = static_cast<std::size_t>(op.op->block);
  const ParameterBlock& block = graph_.blocks[index];
  double* const nodes = as<double>(memory_->data() + nodes_begin_);
  const auto* const ranges = as<CountedRange>(memory_->data() + ranges_begin_[index]);
  const auto of = [&]<bool rounds>(std::bool_constant<rounds>) {
    SquareNodes<rounds, true> kernel;
    kernel.elements = block.elements;
    kernel.gradient = op.operands().get<const float>(Role::sum);
    if constexpr (rounds) kernel.rounded = op.operands().get<BFloat16>(Role::waiting);
    kernel.sums = nodes;
    kernel.ranges = ranges;
    kernel.range_count = static_cast<int>(block.pieces.size());
    device_squares(queue_, kernel);
  };
  form_ == StateForm::compact ? of(std::true_type()) : of(std::false_type());
  device_sum_of_nodes(queue_, stretches_of(block.elements), nodes, as<double>(memory_->data() + sums_begin_), square);
}

void StreamOptimizer::norm(const double* squares, std::int64_t count, float clip, double* norm_and_factor) {
  launch(queue_, {1}, NormOfBlocks{static_cast<int>(count), clip, squares, norm_and_factor});
}

void StreamOptimizer::update(const BoundOp& op, const AdamWSettings& settings) {
  const auto& pieces = graph_.blocks[static_cast<std::size_t>(op.op->block)].pieces;
  const BoundOperands& of = op.operands();
  const Bytes of_gradient = gradient_bytes_per_element(form_);
  for (const TensorPiece& piece : pieces) {
    const std::int64_t begin = std::max(op.op->element_begin, piece.begin),
                       end = std::min(op.op->element_end, piece.begin + piece.elements());
    if (begin >= end) continue;
    const std::int64_t place = begin - op.op->element_begin;  // operands begin with the update's first element
    const AdamWRun run{
        .block = static_cast<std::uint64_t>(op.op->block), .begin = begin, .count = end - begin, .decay = piece.decay};
    const auto array = [&](StateKind kind, Bytes each) { return of.state[static_cast<std::size_t>(kind)] + place * each; };
    std::byte* const gradient = of.get(Role::waiting) + place * of_gradient;
    const auto split = [&]<typename Moment>(std::type_identity<Moment>) {
      return SplitState<Moment>{as<BFloat16>(array(StateKind::weight, 2)), as<std::int16_t>(array(StateKind::low, 2)),
                                as<Moment>(array(StateKind::m, sizeof(Moment))), as<Moment>(array(StateKind::v, sizeof(Moment)))};
    };
    switch (form_) {
      case StateForm::exact:
        device_adamw(queue_, settings, run, split(std::type_identity<float>()), as<const float>(gradient));
        break;
      case StateForm::compact:
        device_adamw(queue_, settings, run, split(std::type_identity<BFloat16>()), as<const BFloat16>(gradient));
        break;
      case StateForm::fp32:
        device_adamw(queue_, settings, run,
                     Fp32State{as<float>(array(StateKind::weight, 4)), as<float>(array(StateKind::m, 4)),
                               as<float>(array(StateKind::v, 4))},
                     as<const float>(gradient));
        break;
    }
  }
}

}  // namespace spillway::cuda
