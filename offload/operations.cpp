#include "offload/operations.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "memory/base/error.h"
#include "memory/base/random.h"
#include "offload/block_squares.h"

namespace spillway {
namespace {

constexpr std::uint64_t kDropout = 0xd409;  // the stream of random numbers for keys of dropout

MixtureOutcome sum_mixture(std::span<const MicroBatchWords> words, double lm_loss) {
  MixtureOutcome sum{.lm_loss = lm_loss, .load = {.most = 0, .least = HUGE_VAL, .entropy = 0}};
  const auto count = static_cast<double>(words.size());
  for (const MicroBatchWords& of : words) {
    sum.balance_loss += of.balance_loss / count;
    sum.z_loss += of.router_z_loss / count;
    sum.load.most = std::max(sum.load.most, of.expert_load.most);
    sum.load.least = std::min(sum.load.least, of.expert_load.least);
    sum.load.entropy += of.expert_load.entropy / count;
  }
  return sum;
}

}  // namespace

Operations::Operations(const Plan& plan, const UnitGraph& graph, Device& device, TierMemory& memory, int threads,
                       std::uint64_t seed, UpdateHashes* hashes, Communicator* communicator)
    : plan_(plan),
      graph_(graph),
      backend_(device.backend()),
      device_(memory.device().data()),
      seed_(seed),
      norm_words_(norm_words(graph, plan.choices)),
      hashes_(hashes),
      communicator_(communicator),
      kernels_(device.make_optimizer(graph, plan.choices)),
      optimizer_(graph, plan.choices, threads) {
  if (kernels_ == nullptr) return;
  SPILLWAY_CHECK(has_host(plan.choices.chain), "a plan of the CPU on a device of its own");
  mirror_.emplace(plan, kRunsUnderWay, device.runtime(), *device.compute_stream(), device_);
}

Bytes Operations::offset_of(TokenArray array, int token_set, int micro_batch) const {
  const int arrays = token_set * token_arrays(graph_) + static_cast<int>(array);
  return plan_.resident[static_cast<std::size_t>(plan_.token_buffer)].offset +
         (static_cast<Bytes>(arrays) * plan_.choices.micro_batches + micro_batch) * token_array_bytes(graph_);
}

const std::int32_t* Operations::array(TokenArray array, const Run& run, int micro_batch) const {
  return reinterpret_cast<const std::int32_t*>(device_ + offset_of(array, run.token_set, micro_batch));
}

void Operations::fill_words(const Run& run, int micro_batch, MicroBatchWords& words) const {
  const double loss_scale = run.step->settings.loss_scale;
  words.loss_scale = static_cast<float>(loss_scale / static_cast<double>(run.step->settings.counted_tokens));
  words.position = run.logits ? run.logits->position : 0;
  words.logits_row = run.logits ? run.logits->row : 0;
  words.batch_share = static_cast<float>(loss_scale / (plan_.choices.sharding.ranks * plan_.choices.micro_batches));
  words.dropout = 0;
  if (run.evaluates || run.logits) return;
  const int rank = communicator_ == nullptr ? 0 : communicator_->rank();
  const auto of_all = static_cast<std::uint64_t>(rank * plan_.choices.micro_batches + micro_batch);
  const RandomKey key = random_key(seed_, static_cast<std::uint64_t>(run.step->settings.adamw.step), kDropout, of_all);
  words.dropout = (static_cast<std::uint64_t>(key.second) << 32 | key.first) | 1;
}

void Operations::begin_run(const Run& run) {
  if (kernels_ == nullptr || run.alone != 0) return;
  int micro_batch = 0;
  for (MicroBatchWords& words : mirror_->words_to_send(run.index)) fill_words(run, micro_batch++, words);
  mirror_->send_words(run.index, micro_batches_of(run));
}

bool Operations::gives_verdict(const BoundOp& bound) const {
  const OpKind kind = bound.op->kind;
  if (!is_enqueued(bound)) return false;
  const bool of_own_gradient = kind == OpKind::gradient_finish && plan_.choices.sharding.ranks == 1;
  return kind == OpKind::loss || kind == OpKind::norm || of_own_gradient;
}

std::string Operations::start(const Run& run, int turn, const BoundOp& bound) {
  if (!is_enqueued(bound)) return execute(run, turn, bound);
  enqueue(run, turn, bound);
  return {};
}

std::string Operations::finish(const Run& run, const BoundOp& bound) {
  switch (bound.op->kind) {
    case OpKind::loss: return sum_losses(run, mirror_->losses(run.index), plan_.choices.sharding.ranks);
    case OpKind::gradient_finish:
      return is_finite_sum(mirror_->square(run.index, bound.op->block)) ? "" : gradient_not_finite(bound.op->block);
    case OpKind::norm:
      return judge_norm(*run.step, mirror_->norm_and_factor(run.index), [&] {
        return last_block_not_finite(graph_, [&](int block) { return mirror_->square(run.index, block); });
      });
    default: return {};
  }
}

void Operations::enqueue(const Run& run, int turn, const BoundOp& bound) {
  const Op& op = *bound.op;
  switch (op.kind) {
    case OpKind::forward:
    case OpKind::backward: return compute(run, turn, bound);
    case OpKind::loss: return mirror_->fetch_losses(run.index, micro_batches_of(run));
    case OpKind::gradient_add: return kernels_->add_gradients(bound);
    case OpKind::gradient_finish:
      kernels_->finish_gradient(bound, squares());
      if (plan_.choices.sharding.ranks > 1) return;
      return mirror_->fetch_squares(run.index, op.block, squares() + norm_words_[op.block], 1);
    case OpKind::norm:
      kernels_->norm(bound.operands().get<const double>(Role::squares), static_cast<float>(run.step->settings.clip),
                     run.step->settings.loss_scale, factor());
      if (plan_.choices.sharding.ranks > 1) mirror_->fetch_squares(run.index, 0, kernels_->block_sums(), graph_.blocks.size());
      return mirror_->fetch_norm(run.index);
    case OpKind::update: return enqueue_update(run, turn, bound);
    case OpKind::move:
    case OpKind::gather:
    case OpKind::reduce:
    case OpKind::commit: break;
  }
  SPILLWAY_CHECK(false, "operation {} of kind {} on the {} lane", bound.id, name_of(op), name_of(op.lane));
}

UpdateHashes* Operations::begin_hashes(const Run& run, int turn, const BoundOp& bound, std::int64_t step) const {
  if (hashes_ == nullptr) return nullptr;
  if (!updates_see_state(plan_.choices)) {
    hashes_->forget(bound, run.slot_after_in(turn));
    return nullptr;
  }
  hashes_->begin(bound, run.slot_before_in(turn), run.slot_after_in(turn), step);
  return hashes_;
}

void Operations::enqueue_update(const Run& run, int turn, const BoundOp& bound) {
  const StepControl& step = run.applied_by(*bound.op);
  if (step.is_stopped()) return;
  if (!applies_waiting_step(*bound.op)) run.step->updates_began.store(true, std::memory_order_relaxed);
  begin_hashes(run, turn, bound, step.settings.adamw.step);
  if (step.is_skipped()) return;
  kernels_->update(bound, settings_of(step, step.clip_factor));
}

std::string Operations::execute(const Run& run, int turn, const BoundOp& bound) {
  const Op& op = *bound.op;
  switch (op.kind) {
    case OpKind::forward:
    case OpKind::backward: compute(run, turn, bound); return {};
    case OpKind::loss: {
      const auto* const of_all = bound.operands().get<const MicroBatchWords>(Role::whole);
      return of_all == nullptr ? sum_losses(run, words(), 1) : sum_losses(run, of_all, plan_.choices.sharding.ranks);
    }
    case OpKind::gradient_add: optimizer_.add_gradients(bound); return {};
    case OpKind::gradient_finish: {
      const bool is_finite = optimizer_.finish_gradient(bound, squares());
      return is_finite || plan_.choices.sharding.ranks > 1 ? "" : gradient_not_finite(op.block);
    }
    case OpKind::norm: return take_norm(*run.step, bound.operands().get<const double>(Role::squares));
    case OpKind::update: return update(run, turn, bound) ? "" : gradient_not_finite(op.block);
    case OpKind::gather: gather(bound); return {};
    case OpKind::reduce: reduce(bound); return {};
    case OpKind::move:
    case OpKind::commit: break;
  }
  SPILLWAY_CHECK(false, "operation {} of kind {} on the {} lane", bound.id, name_of(op), name_of(op.lane));
}

void Operations::compute(const Run& run, int turn, const BoundOp& bound) {
  const Op& op = *bound.op;
  const BoundPass& pass = bound.pass();
  values_ = pass.values;
  weights_ = pass.weights;
  for (int i = 0; i < op.strip.count; ++i) {
    const int micro_batch = first_micro_batch(turn, op.strip) + i;
    MicroBatchWords& words_of_batch = words()[micro_batch];
    if (kernels_ == nullptr) fill_words(run, micro_batch, words_of_batch);
    PassMemory memory = {.values = std::span(values_).first(pass.values_before),
                         .weights = weights_,
                         .gradients = pass.gradients,
                         .workspace = pass.workspace,
                         .constants = plan_.constant_buffer < 0 ? nullptr : resident(plan_.constant_buffer),
                         .tokens = array(TokenArray::tokens, run, micro_batch),
                         .targets = array(TokenArray::targets, run, micro_batch),
                         .documents = graph_.has_documents ? array(TokenArray::documents, run, micro_batch) : nullptr,
                         .words = &words_of_batch,
                         .logits = run.logits ? reinterpret_cast<float*>(device_ + logits_offset()) : nullptr,
                         .first_micro_batch = micro_batch == 0};
    if (pass.calls_before != nullptr) backend_.run(*pass.calls_before, memory);
    memory.values = std::span(values_).subspan(pass.values_before);
    backend_.run(*pass.calls, memory);
    for (std::size_t value = 0; value < values_.size(); ++value) {
      if (values_[value] != nullptr) values_[value] += pass.strides[value];
    }
  }
}

namespace {

const Operand& operand_of(const Op& op, Role role) {
  const auto found = std::ranges::find(op.operands, role, &Operand::role);
  SPILLWAY_CHECK(found != op.operands.end(), "{} has no operand of role {}", name_of(op), static_cast<int>(role));
  return *found;
}

}  // namespace

void Operations::gather(const BoundOp& bound) const {
  const Op& op = *bound.op;
  const std::byte* const part = bound.operands().get<const std::byte>(Role::part);
  std::byte* const whole = bound.operands().get(Role::whole);
  const Bytes bytes = operand_of(op, Role::whole).bytes;
  if (op.block < 0) {
    const Bytes each = operand_of(op, Role::part).bytes;
    return communicator_->gather_words(part, whole, each, static_cast<int>(bytes / each));
  }
  const Bytes each = plan_.blocks[static_cast<std::size_t>(op.block)].weight().each();
  communicator_->gather(bytes / each, each, part == nullptr ? whole + bound.first_element * each : part, whole);
}

void Operations::reduce(const BoundOp& bound) const {
  const BoundOperands& of = bound.operands();
  const auto elements = operand_of(*bound.op, Role::whole).bytes / static_cast<Bytes>(sizeof(float));
  communicator_->reduce(elements, of.get<float>(Role::whole), of.get<float>(Role::part), of.get(Role::workspace));
}

std::string Operations::sum_losses(const Run& run, const MicroBatchWords* words, int ranks) const {
  StepControl& step = *run.step;
  const std::span of_all(words, static_cast<std::size_t>(ranks * micro_batches_of(run)));
  for (const MicroBatchWords& of : of_all) step.loss_sum += of.loss_sum;
  step.loss = step.loss_sum / static_cast<double>(step.settings.counted_tokens);
  if (graph_.has_experts && !run.evaluates) step.mixture = sum_mixture(of_all, step.loss);
  if (step.mixture) step.loss += step.mixture->added(graph_.router_losses);
  if (std::isfinite(step.loss) || run.evaluates) return {};
  const auto fault = std::ranges::find_if(of_all, [](const MicroBatchWords& of) { return of.router_fault != 0; });
  if (graph_.has_experts && fault != of_all.end())
    return fmt::format("the router of layer {} met what is not a number", fault->router_fault - 1);
  return fmt::format("the loss is {}", std::isnan(step.loss) ? "NaN" : "infinite");
}

std::string Operations::take_norm(StepControl& step, const double* squares) {
  const double norm = optimizer_.norm(squares) / step.settings.loss_scale;
  factor()[0] = norm;
  // The clip factor of PyTorch's clip_grad_norm_, in fp32 as there.
  const float scale = static_cast<float>(step.settings.clip) / (static_cast<float>(norm) + 1e-6f);
  factor()[1] = step.settings.clip > 0 ? std::min(1.0f, scale) : 1.0f;
  return judge_norm(step, factor(), [&] { return optimizer_.block_not_finite(squares); });
}

// An only rank has judged each gradient by itself.
template <typename BlockNotFinite>
std::string Operations::judge_norm(StepControl& step, const double* norm_and_factor,
                                   const BlockNotFinite& block_not_finite) const {
  const double norm = step.grad_norm = norm_and_factor[0];
  step.clip_factor = norm_and_factor[1];
  const int block = plan_.choices.sharding.ranks == 1 ? -1 : block_not_finite();
  if (block >= 0) return gradient_not_finite(block);
  if (std::isfinite(norm)) return {};
  return fmt::format("the gradient norm is {}", std::isnan(norm) ? "NaN" : "infinite");
}

AdamWSettings Operations::settings_of(const StepControl& step, double factor) const {
  double scale = 1;
  if (step.known_factor) {
    scale = *step.known_factor;
  } else if (plan_.choices.update != UpdateTime::in_backward && plan_.choices.clip) {
    scale = factor;
  }
  AdamWSettings settings = step.settings.adamw;
  settings.gradient_scale = scale / step.settings.loss_scale;
  settings.seed = seed_;
  return settings;
}

std::string Operations::gradient_not_finite(int block) const {
  return fmt::format("a gradient of {} is not finite", graph_.blocks[block].name);
}

bool Operations::update(const Run& run, int turn, const BoundOp& bound) {
  const bool waited = applies_waiting_step(*bound.op);
  const StepControl& step = run.applied_by(*bound.op);
  if (step.is_stopped()) return true;
  if (!waited) run.step->updates_began.store(true, std::memory_order_relaxed);
  UpdateHashes* const hashes = begin_hashes(run, turn, bound, step.settings.adamw.step);
  if (step.is_skipped()) {
    if (hashes != nullptr) optimizer_.hash_as_it_is(bound, *hashes);
    return true;
  }
  // The factor's copy on the tier that updates; null where the update does not wait for the norm.
  const double* const copy = bound.operands().get<const double>(Role::factor);
  const AdamWSettings settings = settings_of(step, copy == nullptr ? 1 : copy[1]);
  if (!waited && squares_with_update(plan_.choices, bound.op->block))
    return optimizer_.square_and_update(bound, settings, squares());
  optimizer_.update(bound, settings, hashes);
  return true;
}

}  // namespace spillway
