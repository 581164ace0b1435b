#include "offload/optimizer_ops.h"

#include <algorithm>
#include <cmath>

#include "memory/bfloat16.h"
#include "models/ops.h"
#include "offload/host_adamw.h"

namespace spillway {

OptimizerOps::OptimizerOps(const UnitGraph& graph, StateForm form, int threads)
    : graph_(graph), form_(form), pool_(threads, PoolPriority::high) {
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

template <typename T>
T* at(std::byte* base, std::int64_t element) {
  return reinterpret_cast<T*>(base) + element;
}

}  // namespace

void OptimizerOps::update(const BoundOp& op, const UpdateSettings& settings) const {
  const std::int64_t chunk_begin = op.op->element_begin, chunk_end = op.op->element_end;
  const AdamWSettings adamw{.step = settings.step,
                            .lr = settings.lr,
                            .beta1 = settings.beta1,
                            .beta2 = settings.beta2,
                            .epsilon = settings.epsilon,
                            .weight_decay = settings.weight_decay,
                            .gradient_scale = settings.gradient_scale,
                            .seed = settings.seed};
  const auto& state = op.state;
  const auto of = [&](StateKind kind) { return state[static_cast<std::size_t>(kind)]; };
  for (const TensorPiece& piece : graph_.blocks[op.op->block].pieces) {
    const std::int64_t begin = std::max(chunk_begin, piece.begin), end = std::min(chunk_end, piece.begin + piece.elements());
    if (begin >= end) continue;
    const AdamWRun run{
        .block = static_cast<std::uint64_t>(op.op->block), .begin = begin, .count = end - begin, .decay = piece.decay};
    const std::int64_t first = begin - chunk_begin;  // the operands begin with the chunk
    switch (form_) {
      case StateForm::exact: {
        const ExactState out{at<BFloat16>(of(StateKind::weight), first), at<std::int16_t>(of(StateKind::low), first),
                             at<float>(of(StateKind::m), first), at<float>(of(StateKind::v), first)};
        host_adamw(pool_, adamw, run, source_of(out), at<const float>(op.gradient[0], first), out);
        break;
      }
      case StateForm::compact: {
        const CompactState out{at<BFloat16>(of(StateKind::weight), first), at<std::int16_t>(of(StateKind::low), first),
                               at<BFloat16>(of(StateKind::m), first), at<BFloat16>(of(StateKind::v), first)};
        host_adamw(pool_, adamw, run, source_of(out), at<const BFloat16>(op.gradient[0], first), out);
        break;
      }
      case StateForm::fp32: {
        const Fp32State out{at<float>(of(StateKind::weight), first), at<float>(of(StateKind::m), first),
                            at<float>(of(StateKind::v), first)};
        host_adamw(pool_, adamw, run, source_of(out), at<const float>(op.gradient[0], first), out);
        break;
      }
    }
  }
}

}  // namespace spillway
