#include "offload/cuda/kernel_optimizer.cuh"

#include <algorithm>
#include <vector>

#include "memory/base/error.h"
#include "offload/cuda/add_gradients.cuh"
#include "offload/cuda/part_squares.cuh"
#include "offload/cuda/squares.cuh"

namespace spillway::cuda {
namespace {

std::int64_t stretches_of(std::int64_t elements) { return (elements + kSquareStretch - 1) / kSquareStretch; }

template <typename T>
T* as(std::byte* address) {
  return reinterpret_cast<T*>(address);
}

// The additions that make a block's sum of squares from its words, as steps of SumOfWords.
struct Additions {
  std::vector<SumStep> steps;
  int depth = 0;  // of the stack
  Additions operator+(const Additions& right) const {
    Additions sum = *this;
    sum.steps.insert(sum.steps.end(), right.steps.begin(), right.steps.end());
    ++sum.steps.back().joins;
    sum.depth = std::max(depth, right.depth + 1);
    return sum;
  }
};

Additions additions_of(const ParameterBlock& block, const Sharding& sharding, std::int64_t first_word, std::int64_t words) {
  const auto word = [](std::int64_t index) { return Additions{{{static_cast<std::int32_t>(index), 0}}, 1}; };
  if (!sharding.shards_optimizer()) return word(first_word);
  std::vector<std::int64_t> begins, indices;
  for (int member = 0; member < sharding.group; ++member) {
    const Shard part = part_of(block.elements, sharding, member);
    const SquareCut cut(part.begin, part.end());
    for (std::int64_t place = 0; place < cut.size(); ++place) {
      begins.push_back(cut[place].begin);
      indices.push_back(member * words + first_word + place);
    }
  }
  return sum_of_nodes(
      0, std::ssize(begins), [&](std::int64_t place) { return begins[static_cast<std::size_t>(place)]; },
      [&](std::int64_t place) { return word(indices[static_cast<std::size_t>(place)]); });
}

}  // namespace

StreamOptimizer::StreamOptimizer(Runtime& runtime, Queue& queue, const UnitGraph& graph, const Choices& choices)
    : queue_(queue),
      graph_(graph),
      form_(choices.form),
      sharding_(choices.sharding),
      norm_words_(spillway::norm_words(graph, choices)) {
  std::vector<CountedRange> ranges;
  std::vector<std::int32_t> begins;
  std::vector<SumStep> steps;
  std::int64_t most = 1;
  for (std::size_t index = 0; index < graph.blocks.size(); ++index) {
    const ParameterBlock& block = graph.blocks[index];
    ranges_begin_.push_back(static_cast<Bytes>(ranges.size() * sizeof(CountedRange)));
    for (const TensorPiece& piece : block.pieces) ranges.push_back({piece.begin, piece.begin + piece.elements()});
    most = std::max(most, stretches_of(block.elements));
    begins.push_back(static_cast<std::int32_t>(steps.size()));
    if (block.frozen) continue;
    const Additions additions = additions_of(block, sharding_, norm_words_[index], norm_words_.back());
    steps.insert(steps.end(), additions.steps.begin(), additions.steps.end());
    depth_ = std::max(depth_, additions.depth);
  }
  begins.push_back(static_cast<std::int32_t>(steps.size()));
  Bytes all = static_cast<Bytes>(ranges.size() * sizeof(CountedRange));
  const auto placed = [&](std::int64_t count, Bytes each) {
    const Bytes begin = round_up(all, 256);
    all = begin + count * each;
    return begin;
  };
  stretches_ = placed(most, sizeof(double));
  room_ = placed(scratch_of_sum(most) + 1, sizeof(double));
  begins_ = placed(std::ssize(begins), sizeof(std::int32_t));
  steps_ = placed(std::ssize(steps), sizeof(SumStep));
  stacks_ = placed(std::ssize(graph.blocks) * depth_, sizeof(double));
  sums_of_blocks_ = placed(std::ssize(graph.blocks), sizeof(double));
  memory_.emplace(runtime.allocate(Tier::device, all, "squares of gradients"));
  const auto send = [&](Bytes to, const auto& table) {
    runtime.copy(memory_->data() + to, reinterpret_cast<const std::byte*>(table.data()),
                 static_cast<Bytes>(table.size() * sizeof(table[0])));
  };
  send(0, ranges), send(begins_, begins), send(steps_, steps);
}

void StreamOptimizer::add_gradients(const BoundOp& op) {
  device_add_gradients(queue_, graph_.blocks[static_cast<std::size_t>(op.op->block)].elements,
                       op.operands().get<const float>(Role::addend), op.operands().get<float>(Role::sum));
}

void StreamOptimizer::finish_gradient(const BoundOp& op, double* words) {
  const auto index = static_cast<std::size_t>(op.op->block);
  const ParameterBlock& block = graph_.blocks[index];
  const bool is_part = sharding_.shards_optimizer();
  const std::int64_t elements =
      is_part ? std::clamp<std::int64_t>(block.elements - op.first_element, 0, shard_elements(block.elements, sharding_))
              : block.elements;
  double* const sums = at<double>(stretches_);
  const auto of = [&]<bool rounds>(std::bool_constant<rounds>) {
    SquareNodes<rounds, true> kernel;
    kernel.elements = elements;
    kernel.gradient = op.operands().get<const float>(Role::sum);
    if constexpr (rounds) kernel.rounded = op.operands().get<BFloat16>(Role::waiting);
    kernel.sums = sums;
    kernel.first = op.first_element;
    kernel.ranges = at<CountedRange>(ranges_begin_[index]);
    kernel.range_count = static_cast<int>(block.pieces.size());
    device_squares(queue_, kernel);
  };
  form_ == StateForm::compact ? of(std::true_type()) : of(std::false_type());
  double* const words_of_block = words + norm_words_[index];
  if (!is_part) return device_sum_of_nodes(queue_, stretches_of(elements), sums, at<double>(room_), words_of_block);
  const std::int64_t begin = op.first_element, nodes = SquareCut(begin, begin + elements).size();
  if (nodes == 0) return;
  launch(queue_, {nodes, JoinPart::kThreads * static_cast<Bytes>(sizeof(double))},
         JoinPart{begin / kSquareStretch, (begin + elements) / kSquareStretch, sums, words_of_block});
}

void StreamOptimizer::norm(const double* words, float clip, double loss_scale, double* norm_and_factor) {
  const auto blocks = static_cast<int>(graph_.blocks.size());
  double* const sums = at<double>(sums_of_blocks_);
  launch(queue_, {(blocks + SumOfWords::kThreads - 1) / SumOfWords::kThreads},
         SumOfWords{blocks, depth_, at<std::int32_t>(begins_), at<SumStep>(steps_), words, at<double>(stacks_), sums});
  launch(queue_, {1}, NormOfBlocks{blocks, clip, sums, norm_and_factor, loss_scale});
}

void StreamOptimizer::update(const BoundOp& op, const AdamWSettings& settings) {
  const auto& pieces = graph_.blocks[static_cast<std::size_t>(op.op->block)].pieces;
  const BoundOperands& of = op.operands();
  const Bytes of_gradient = gradient_bytes_per_element(form_);
  const std::int64_t first = op.first_element + op.op->element_begin, last = op.first_element + op.op->element_end;
  for (const TensorPiece& piece : pieces) {
    const std::int64_t begin = std::max(first, piece.begin), end = std::min(last, piece.begin + piece.elements());
    if (begin >= end) continue;
    const std::int64_t place = begin - first;  // operands begin with the update's first element
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
      case StateForm::fp16:
        device_adamw(queue_, settings, run,
                     Fp16State{as<Float16>(array(StateKind::weight, 2)), as<float>(array(StateKind::master, 4)),
                               as<float>(array(StateKind::m, 4)), as<float>(array(StateKind::v, 4))},
                     as<const float>(gradient));
        break;
    }
  }
}

}  // namespace spillway::cuda
