#include "offload/optimizer_ops.h"

#include <algorithm>
#include <cmath>

#include "memory/bfloat16.h"
#include "models/ops.h"
#include "offload/host_adamw.h"

namespace spillway {
OptimizerOps::OptimizerOps(const UnitGraph& graph, StateForm form, int threads)
    : graph_(graph), rows_(graph), form_(form), pool_(threads, PoolPriority::high), first_piece_(graph.first_pieces()) {
  Bytes scratch = 0;
  for (const ParameterBlock& block : graph.blocks) {
    for (const TensorPiece& piece : block.pieces)
      scratch = std::max(
          {scratch, ops::sum_of_squares_scratch_bytes(piece.elements()), piece.rows * static_cast<Bytes>(sizeof(double))});
  }
  std::int64_t chunks = 0;
  for (const ParameterBlock& block : graph.blocks) {
    square_tasks_.push_back(square_tasks_of(block));
    for (const SquareTask& task : square_tasks_.back())
      chunks = std::max(chunks, task.first_sum + (task.end - task.begin + task.chunk - 1) / task.chunk);
  }
  chunk_sums_.resize(static_cast<std::size_t>(chunks));
  tensor_sums_.resize(static_cast<std::size_t>(graph.tensors));
  scratch_.resize(static_cast<std::size_t>(scratch));
  zeros_.resize(static_cast<std::size_t>(std::max(kAdamWChunk, rows_.row_elements()) * gradient_bytes_per_element(form)));
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
    sum = sum_of_squares(op.op->block, piece, gradient + piece.begin,
                         form_ == StateForm::compact ? rounded + piece.begin : nullptr);
    finite &= std::isfinite(sum);
  }
  return finite;
}

// Of what is looked up row by row: plans that keep touched rows apart know these last.
double OptimizerOps::sum_of_squares(int block, const TensorPiece& piece, const float* gradient, BFloat16* rounded) {
  if (!graph_.blocks[block].looked_up) {
    return form_ == StateForm::compact ? ops::round_and_square(pool_, piece.elements(), gradient, rounded, scratch_.data())
                                       : ops::sum_of_squares(pool_, piece.elements(), gradient, scratch_.data());
  }
  auto* sums = reinterpret_cast<double*>(scratch_.data());
  square_rows(piece.rows, piece.columns, gradient, rounded, sums);
  return ops::tree_sum({sums, static_cast<std::size_t>(piece.rows)});
}

void OptimizerOps::square_rows(std::int64_t rows, std::int64_t columns, const float* gradient, BFloat16* rounded,
                               double* sums) const {
  if (form_ == StateForm::compact) {
    ops::round_and_square_rows(pool_, rows, columns, gradient, rounded, sums);
  } else {
    ops::row_squares(pool_, rows, columns, gradient, sums);
  }
}

// As sum_of_squares() has them.
std::vector<OptimizerOps::SquareTask> OptimizerOps::square_tasks_of(const ParameterBlock& block) const {
  std::vector<SquareTask> tasks;
  std::int64_t sum = 0;
  for (const TensorPiece& piece : block.pieces) {
    const std::int64_t chunk = block.looked_up ? piece.columns : ops::kSquareChunk,
                       together = std::max<std::int64_t>(1, ops::kSquareChunk / chunk), end = piece.begin + piece.elements();
    for (std::int64_t begin = piece.begin; begin < end; begin += together * chunk) {
      tasks.push_back({begin, std::min(end, begin + together * chunk), chunk, sum});
      sum += (tasks.back().end - begin + chunk - 1) / chunk;
    }
  }
  return tasks;
}

bool OptimizerOps::square_and_update(const BoundOp& op, const UpdateSettings& settings, double* sums) {
  const int block = op.op->block;
  const std::int64_t begin = op.op->element_begin, end = op.op->element_end;
  const std::vector<SquareTask>& tasks = square_tasks_[static_cast<std::size_t>(block)];
  const auto from = [&](std::int64_t element) { return std::ranges::lower_bound(tasks, element, {}, &SquareTask::begin); };
  const auto first = from(begin), last = from(end);
  // What the update before this one has squared and left.
  const std::int64_t left = first == tasks.end() ? end : std::min(end, first->begin);
  pool_.parallel_for(1 + (last - first), [&](std::int64_t index, int) {
    if (index > 0) return square_and_update(op, settings, first[index - 1], end);
    for (std::int64_t at = begin; at < left; at += kAdamWChunk)
      update_elements(op, settings, {}, at, std::min(left, at + kAdamWChunk));
  });
  if (end < graph_.blocks[static_cast<std::size_t>(block)].elements) return true;
  bool finite = true;
  int place = first_piece(block);
  auto task = tasks.begin();
  for (const TensorPiece& piece : graph_.blocks[static_cast<std::size_t>(block)].pieces) {
    const std::int64_t piece_end = piece.begin + piece.elements(), first_sum = task->first_sum,
                       chunks = (piece.elements() + task->chunk - 1) / task->chunk;
    while (task != tasks.end() && task->begin < piece_end) ++task;
    double& sum = sums[place++];
    sum = ops::tree_sum({chunk_sums_.data() + first_sum, static_cast<std::size_t>(chunks)});
    finite &= std::isfinite(sum);
  }
  return finite;
}

// Whole chunks, or a part of one, as much as fits a cache: squared, then updated as far as the operation goes.
void OptimizerOps::square_and_update(const BoundOp& op, const UpdateSettings& settings, const SquareTask& task,
                                     std::int64_t until) {
  const auto* gradient = reinterpret_cast<const float*>(op.gradient[0]) - op.op->element_begin;
  const std::int64_t whole_chunks = kAdamWChunk / task.chunk * task.chunk;
  for (std::int64_t at = task.begin, stop; at < task.end; at = stop) {
    double* sum = chunk_sums_.data() + task.first_sum + (at - task.begin) / task.chunk;
    const std::int64_t in_chunk = (at - task.begin) % task.chunk;
    stop = std::min(task.end, at + (whole_chunks > 0 ? whole_chunks : std::min(kAdamWChunk, task.chunk - in_chunk)));
    for (std::int64_t from = at; from < stop; from += task.chunk)
      *sum = ops::add_squares(from == at && in_chunk > 0 ? *sum : 0, std::min(stop - from, task.chunk), gradient + from), ++sum;
    if (at < until) update_elements(op, settings, {}, at, std::min(stop, until));
  }
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

void OptimizerOps::step(const UpdateSettings& settings, int block, std::int64_t begin, std::int64_t count,
                        const Elements& at) const {
  const AdamWSettings adamw{.step = settings.step,
                            .lr = settings.lr,
                            .beta1 = settings.beta1,
                            .beta2 = settings.beta2,
                            .epsilon = settings.epsilon,
                            .weight_decay = settings.weight_decay,
                            .gradient_scale = settings.gradient_scale,
                            .seed = settings.seed};
  const auto& pieces = graph_.blocks[block].pieces;
  const auto piece =
      std::find_if(pieces.begin(), pieces.end(), [&](const TensorPiece& of) { return begin < of.begin + of.elements(); });
  const AdamWRun run{.block = static_cast<std::uint64_t>(block), .begin = begin, .count = count, .decay = piece->decay};
  std::byte* const weight = at.state[static_cast<int>(StateKind::weight)];
  const std::byte* const gradient = at.gradient != nullptr ? at.gradient : zeros_.data();
  switch (form_) {
    case StateForm::exact:
      host_adamw(adamw, run, source_of(split_state<float>(weight, at.state)), as<float>(gradient),
                 split_state<float>(at.weight, at.state));
      break;
    case StateForm::compact:
      host_adamw(adamw, run, source_of(split_state<BFloat16>(weight, at.state)), as<BFloat16>(gradient),
                 split_state<BFloat16>(at.weight, at.state));
      break;
    case StateForm::fp32:
      host_adamw(adamw, run, source_of(fp32_state(weight, at.state)), as<float>(gradient), fp32_state(at.weight, at.state));
      break;
  }
}

void OptimizerOps::update(const BoundOp& op, const UpdateSettings& settings, const TouchedRows& apart,
                          UpdateHashes* hashes) const {
  const std::int64_t elements = op.op->element_end - op.op->element_begin;
  pool_.parallel_for((elements + kAdamWChunk - 1) / kAdamWChunk, [&](std::int64_t task, int) {
    const std::int64_t begin = task * kAdamWChunk, end = std::min(begin + kAdamWChunk, elements);
    if (hashes != nullptr) hashes->take_old(begin, end);
    update_elements(op, settings, apart, op.op->element_begin + begin, op.op->element_begin + end);
    if (hashes != nullptr) hashes->take_new(begin, end);
  });
  if (hashes != nullptr) hashes->finish();
}

// Elements [first, last) of the block: what of each piece is among them, and of each row that is taken apart.
void OptimizerOps::update_elements(const BoundOp& op, const UpdateSettings& settings, const TouchedRows& apart,
                                   std::int64_t first, std::int64_t last) const {
  const int block = op.op->block;
  const Bytes gradient_bytes = gradient_bytes_per_element(form_);
  const auto run = [&](std::int64_t begin, std::int64_t end, const std::byte* gradient) {
    const std::int64_t place = begin - op.op->element_begin;  // the operands begin with the update
    Elements at{.gradient = gradient};
    for (int kind = 0; kind < kStateKinds; ++kind)
      at.state[kind] = op.state[kind] + place * bytes_per_element(form_, static_cast<StateKind>(kind));
    at.weight = at.state[static_cast<int>(StateKind::weight)];
    step(settings, block, begin, end - begin, at);
  };
  const auto run_dense = [&](std::int64_t begin, std::int64_t end) {
    if (begin < end)
      run(begin, end, op.gradient[0] == nullptr ? nullptr : op.gradient[0] + (begin - op.op->element_begin) * gradient_bytes);
  };
  for (const TensorPiece& piece : graph_.blocks[block].pieces) {
    std::int64_t begin = std::max(first, piece.begin);
    const std::int64_t end = std::min(last, piece.begin + piece.elements());
    if (!apart.empty() && begin < end) {
      const RowLookup& lookup = rows_.lookup_of(block);
      const std::int64_t H = lookup.row_elements;
      for (const TouchedRow& row : apart.between(lookup.first + begin / H, lookup.first + (end + H - 1) / H)) {
        const std::int64_t row_begin = (row.token - lookup.first) * H, from = std::max(begin, row_begin),
                           to = std::min(end, row_begin + H);
        run_dense(begin, from);
        if (apart.have_gradients()) run(from, to, apart.gradient(row) + (from - row_begin) * gradient_bytes);
        begin = to;
      }
    }
    run_dense(begin, end);
  }
}

}  // namespace spillway
