#include "offload/operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "memory/error.h"

namespace spillway {

Operations::Operations(const Plan& plan, const UnitGraph& graph, Backend& backend, int threads, std::byte* device,
                       std::uint64_t seed, UpdateHashes* hashes)
    : plan_(plan),
      graph_(graph),
      backend_(backend),
      device_(device),
      seed_(seed),
      hashes_(hashes),
      optimizer_(graph, plan.choices.form, threads),
      row_ops_(graph, plan.choices, optimizer_) {}

void Operations::note_tokens(int token_slot) {
  if (!plan_.choices.fetches_rows) return;
  row_ops_.note_tokens(token_slot, tokens(token_slot, 0, {.micro_batch = 0, .micro_batches = plan_.choices.micro_batches}));
}

Bytes Operations::tokens_offset(int token_slot, int micro_batch) const {
  const Bytes step = plan_.choices.micro_batches * graph_.token_bytes;
  return plan_.resident[static_cast<std::size_t>(plan_.token_buffer)].offset + token_slot * step +
         micro_batch * graph_.token_bytes / 2;
}

Bytes Operations::targets_offset(int token_slot, int micro_batch) const {
  return tokens_offset(token_slot, micro_batch + plan_.choices.micro_batches);
}

std::span<const std::int32_t> Operations::tokens(int token_slot, int turn, const OpHead& op) const {
  return {reinterpret_cast<const std::int32_t*>(device_ + tokens_offset(token_slot, first_micro_batch(turn, op))),
          static_cast<std::size_t>(op.micro_batches * graph_.rows)};
}

std::string Operations::execute(Run& run, int turn, const BoundOp& bound) {
  const Op& op = *bound.op;
  switch (op.kind) {
    case OpKind::forward:
    case OpKind::backward:
      compute(run, turn, bound);
      return {};
    case OpKind::loss:
      return sum_losses(run);
    case OpKind::gradient_add:
      optimizer_.add_gradients(bound);
      return {};
    case OpKind::gradient_finish:
      if (!bound.values.empty()) {
        if (row_ops_.keep_apart(bound, run.token_slot)) return {};
      } else if (optimizer_.finish_gradient(bound, norm_words())) {
        return {};
      }
      return gradient_not_finite(op.block);
    case OpKind::norm:
      return take_norm(run);
    case OpKind::update:
      if (update(run, turn, bound)) return {};
      return gradient_not_finite(op.block);
    case OpKind::update_rows:
      update_rows(run, turn, bound);
      return {};
    case OpKind::add_rows:
      row_ops_.add_rows(bound, run.token_slot);
      return {};
    case OpKind::finish_rows:
      if (row_ops_.finish_rows(bound, run.token_slot, norm_words())) return {};
      return "a gradient of the embedding is not finite";
    case OpKind::update_touched:
      update_touched(run, bound);
      return {};
    case OpKind::upload:
    case OpKind::download:
      for (const BoundCopy& copy : bound.copies) std::memcpy(copy.to, copy.from, static_cast<std::size_t>(copy.bytes));
      return {};
    case OpKind::read:
    case OpKind::write:
    case OpKind::fetch_rows:
    case OpKind::write_rows:
    case OpKind::gather:
    case OpKind::reduce:
    case OpKind::commit:
      break;
  }
  SPILLWAY_CHECK(false, "operation {} of kind {} on the {} lane", bound.id, name_of(op.kind), name_of(op.lane));
}

void Operations::compute(const Run& run, int turn, const BoundOp& bound) {
  const Op& op = *bound.op;
  values_ = bound.values;
  weights_ = bound.weights;
  for (int i = 0; i < op.micro_batches; ++i) {
    const int micro_batch = first_micro_batch(turn, op) + i;
    MicroBatchWords& words_of_batch = words()[micro_batch];
    words_of_batch.loss_scale = static_cast<float>(1.0 / static_cast<double>(run.settings.counted_tokens));
    words_of_batch.position = run.logits ? run.logits->position : 0;
    words_of_batch.logits_row = run.logits ? run.logits->row : 0;
    PassMemory memory = {.values = std::span(values_).first(bound.values_before),
                         .weights = weights_,
                         .gradients = bound.gradients,
                         .workspace = bound.workspace,
                         .constants = plan_.constant_buffer < 0 ? nullptr : resident(plan_.constant_buffer),
                         .tokens = reinterpret_cast<const std::int32_t*>(device_ + tokens_offset(run.token_slot, micro_batch)),
                         .targets = reinterpret_cast<const std::int32_t*>(device_ + targets_offset(run.token_slot, micro_batch)),
                         .words = &words_of_batch,
                         .logits = run.logits ? reinterpret_cast<float*>(device_ + logits_offset()) : nullptr,
                         .first_micro_batch = micro_batch == 0};
    if (bound.calls_before != nullptr) backend_.run(*bound.calls_before, memory);
    memory.values = std::span(values_).subspan(bound.values_before);
    backend_.run(*bound.calls, memory);
    for (std::size_t value = 0; value < values_.size(); ++value) {
      if (values_[value] != nullptr) values_[value] += bound.strides[value];
    }
    if (bound.takes_rows && weights_[0] != nullptr) weights_[0] += bound.rows_stride;
  }
}

std::string Operations::sum_losses(Run& run) const {
  const int micro_batches = run.evaluates ? 1 : plan_.choices.micro_batches;
  double sum = 0;
  for (int mb = 0; mb < micro_batches; ++mb) sum += words()[mb].loss_sum;
  run.loss_sum = sum;
  run.loss = sum / static_cast<double>(run.settings.counted_tokens);
  if (std::isfinite(run.loss) || run.evaluates) return {};
  return fmt::format("the loss is {}", std::isnan(run.loss) ? "NaN" : "infinite");
}

std::string Operations::take_norm(Run& run) {
  const double norm = optimizer_.norm(norm_words());
  run.grad_norm = norm;
  factor()[0] = norm;
  // As PyTorch's clip_grad_norm_, in fp32 as there.
  const float scale = static_cast<float>(run.settings.clip) / (static_cast<float>(norm) + 1e-6f);
  factor()[1] = run.settings.clip > 0 ? std::min(1.0f, scale) : 1.0f;
  if (std::isfinite(norm)) return {};
  return fmt::format("the gradient norm is {}", std::isnan(norm) ? "NaN" : "infinite");
}

UpdateSettings Operations::settings_of(const Run& run, const StepSettings& step, const double* factor) const {
  double scale = 1;
  if (run.known_factor) {
    scale = *run.known_factor;
  } else if (plan_.choices.update != UpdateTime::in_backward && plan_.choices.clip) {
    scale = factor[1];
  }
  return {.step = step.step,
          .lr = step.lr,
          .beta1 = step.beta1,
          .beta2 = step.beta2,
          .epsilon = step.epsilon,
          .weight_decay = step.weight_decay,
          .gradient_scale = scale,
          .seed = seed_};
}

std::string Operations::gradient_not_finite(int block) const {
  return fmt::format("a gradient of {} is not finite", graph_.blocks[block].name);
}

bool Operations::update(Run& run, int turn, const BoundOp& bound) {
  if (run.is_stopped.load(std::memory_order_acquire)) return true;
  const bool waited = bound.op->when == kWaitingUpdates;
  if (!waited) run.updates_done.store(true, std::memory_order_relaxed);
  const StepSettings& step = waited ? run.update_settings : run.settings;
  if (hashes_ != nullptr) hashes_->begin(bound, run.slot_before_in(turn), run.slot_after_in(turn), step.step);
  TouchedRows apart;
  if (keeps_rows_apart(graph_, plan_.choices, bound.op->block)) {
    apart = bound.values.empty() ? row_ops_.touched(run.token_slot) : row_ops_.waiting(bound);
  }
  if (!waited && squares_with_update(graph_, plan_.choices, bound.op->block))
    return optimizer_.square_and_update(bound, settings_of(run, step, factor()), norm_words());
  // The loss and the factor, in that order, where the update runs.
  const auto* const clipping = bound.control.size() < 2 ? factor() : reinterpret_cast<const double*>(bound.control.back());
  optimizer_.update(bound, settings_of(run, step, clipping), apart, hashes_);
  return true;
}

void Operations::update_touched(Run& run, const BoundOp& bound) const {
  if (run.is_stopped.load(std::memory_order_acquire)) return;
  run.updates_done.store(true, std::memory_order_relaxed);
  row_ops_.update_touched(bound, run.token_slot, settings_of(run, run.settings, factor()));
}

void Operations::update_rows(const Run& run, int turn, const BoundOp& bound) const {
  const std::span<const std::int32_t> row_tokens = tokens(run.token_slot, turn, *bound.op);
  if (run.pending && defers_all(plan_.choices)) {
    row_ops_.update_rows(bound, row_tokens, settings_of(run, run.update_settings, factor()));
  } else {
    row_ops_.copy_rows(bound, row_tokens);
  }
}

}  // namespace spillway
