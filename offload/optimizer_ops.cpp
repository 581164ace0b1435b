#include "offload/optimizer_ops.h"

#include <algorithm>
#include <cmath>

#include "memory/bfloat16.h"
#include "models/ops.h"

namespace spillway {

OptimizerOps::OptimizerOps(const UnitGraph& graph, StateForm form, int threads)
    : graph_(graph), rows_(graph), form_(form), pool_(threads, PoolPriority::high) {
  Bytes scratch = 0;
  first_piece_.assign(1, 0);
  for (const ParameterBlock& block : graph.blocks) {
    first_piece_.push_back(first_piece_.back() + static_cast<int>(block.pieces.size()));
    for (const TensorPiece& piece : block.pieces)
      scratch = std::max(scratch, ops::sum_of_squares_scratch_bytes(piece.elements()));
  }
  tensor_sums_.resize(static_cast<std::size_t>(graph.tensors));
  scratch_.resize(static_cast<std::size_t>(scratch));
}

void OptimizerOps::add_gradients(const BoundOp& op) const {
  auto* first = reinterpret_cast<float*>(op.gradient[0]);
  const auto* second = reinterpret_cast<const float*>(op.gradient[1]);
  for (const TensorPiece& piece : graph_.blocks[op.op->block].pieces)
    ops::accumulate(pool_, piece.elements(), second + piece.begin, first + piece.begin);
}

bool OptimizerOps::finish_gradient(const BoundOp& op, double* sums) {
  const auto* gradient = reinterpret_cast<const float*>(op.gradient[0]);
  auto* rounded = reinterpret_cast<BFloat16*>(op.gradient[1]);
  bool finite = true;
  int place = first_piece_[op.op->block];
  for (const TensorPiece& piece : graph_.blocks[op.op->block].pieces) {
    double& sum = sums[place++];
    if (form_ == StateForm::compact) {
      ops::cast_from_float(pool_, piece.elements(), gradient + piece.begin, rounded + piece.begin);
      sum = ops::sum_of_squares(pool_, piece.elements(), rounded + piece.begin, scratch_.data());
    } else {
      sum = ops::sum_of_squares(pool_, piece.elements(), gradient + piece.begin, scratch_.data());
    }
    finite &= std::isfinite(sum);
  }
  return finite;
}

double OptimizerOps::norm(const double* sums) {
  std::fill(tensor_sums_.begin(), tensor_sums_.end(), 0.0);
  int place = 0;
  for (const ParameterBlock& block : graph_.blocks) {
    for (const TensorPiece& piece : block.pieces) tensor_sums_[static_cast<std::size_t>(piece.tensor_index)] += sums[place++];
  }
  double total = 0;
  for (const double sum : tensor_sums_) total += sum;
  return std::sqrt(total);
}

namespace {

AdamWSettings adamw_of(const UpdateSettings& settings) {
  return {.step = settings.step,
          .lr = settings.lr,
          .beta1 = settings.beta1,
          .beta2 = settings.beta2,
          .epsilon = settings.epsilon,
          .weight_decay = settings.weight_decay,
          .gradient_scale = settings.gradient_scale,
          .seed = settings.seed};
}

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

void OptimizerOps::step(const AdamWSettings& settings, const AdamWRun& run, const Elements& at) const {
  std::byte* const weight = at.state[static_cast<int>(StateKind::weight)];
  switch (form_) {
    case StateForm::exact:
      host_adamw(pool_, settings, run, source_of(split_state<float>(weight, at.state)), as<float>(at.gradient),
                 split_state<float>(at.weight, at.state));
      break;
    case StateForm::compact:
      host_adamw(pool_, settings, run, source_of(split_state<BFloat16>(weight, at.state)), as<BFloat16>(at.gradient),
                 split_state<BFloat16>(at.weight, at.state));
      break;
    case StateForm::fp32:
      host_adamw(pool_, settings, run, source_of(fp32_state(weight, at.state)), as<float>(at.gradient), fp32_state(at.weight, at.state));
      break;
  }
}

void OptimizerOps::update(const BoundOp& op, const UpdateSettings& settings) const {
  const std::int64_t chunk_begin = op.op->element_begin, chunk_end = op.op->element_end;
  for (const TensorPiece& piece : graph_.blocks[op.op->block].pieces) {
    const std::int64_t begin = std::max(chunk_begin, piece.begin), end = std::min(chunk_end, piece.begin + piece.elements());
    if (begin >= end) continue;
    const std::int64_t first = begin - chunk_begin;  // the operands begin with the chunk
    Elements at{.gradient = op.gradient[0] + first * gradient_bytes_per_element(form_)};
    for (int kind = 0; kind < kStateKinds; ++kind)
      at.state[kind] = op.state[kind] + first * bytes_per_element(form_, static_cast<StateKind>(kind));
    at.weight = at.state[static_cast<int>(StateKind::weight)];
    step(adamw_of(settings), {.block = static_cast<std::uint64_t>(op.op->block), .begin = begin, .count = end - begin, .decay = piece.decay}, at);
  }
}

void OptimizerOps::update_rows(const BoundOp& op, std::span<const std::int32_t> tokens, const UpdateSettings& settings) const {
  const AdamWSettings adamw = adamw_of(settings);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const FetchedRow row = rows_.row_of(tokens[i]);
    const auto fetched = [&](std::byte* windows, Bytes each) {
      return each == 0 ? nullptr : windows + static_cast<Bytes>(i) * rows_.read_bytes(each) + rows_.within(row, each);
    };
    Elements at{.gradient = fetched(op.gradient[0], gradient_bytes_per_element(form_)), .weight = row_out(op, i)};
    for (int kind = 0; kind < kStateKinds; ++kind)
      at.state[kind] = fetched(op.state[kind], bytes_per_element(form_, static_cast<StateKind>(kind)));
    step(adamw,
         {.block = static_cast<std::uint64_t>(row.block),
          .begin = row.element,
          .count = rows_.row_elements(),
          .decay = graph_.blocks[row.block].pieces.front().decay},
         at);
  }
}

void OptimizerOps::copy_rows(const BoundOp& op, std::span<const std::int32_t> tokens) const {
  const Bytes each = bytes_per_element(form_, StateKind::weight);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::byte* window = op.state[static_cast<int>(StateKind::weight)] + static_cast<Bytes>(i) * rows_.read_bytes(each);
    std::copy_n(window + rows_.within(rows_.row_of(tokens[i]), each), rows_.row_elements() * each, row_out(op, i));
  }
}

std::byte* OptimizerOps::row_out(const BoundOp& op, std::size_t row) const {
  return op.values[0] + static_cast<Bytes>(row) * rows_.row_elements() * bytes_per_element(form_, StateKind::weight);
}

}  // namespace spillway
