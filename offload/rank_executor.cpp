#include "offload/rank_executor.h"

#include <algorithm>
#include <utility>

#include "memory/base/error.h"
#include "memory/runtime/runtime.h"
#include "offload/buffer_guard.h"

namespace spillway {

RankExecutor::RankExecutor(const ExecutorOptions& options, const RankResources& with, Communicator* communicator,
                           Transport* committers)
    : options_(options),
      plan_(*options.plan),
      graph_(options.model->graph),
      memory_(plan_, prepared(options, *with.device).runtime(), *with.pool),
      // State that does not outlive the process has no hashes.
      extents_(with.durability ? std::make_unique<StateExtents>(with.durability->layout.state, with.store) : nullptr),
      update_hashes_(extents_ ? std::make_unique<UpdateHashes>(*extents_, plan_, with.durability->interval) : nullptr),
      operations_(plan_, graph_, *with.device, memory_, with.pool->threads(), options.seed, update_hashes_.get(), communicator),
      generations_(plan_.choices.slots == 2, with.durability ? with.durability->interval : 0) {
  if (kGuardsBuffers && memory_.runtime().host_sees_device()) BufferGuard::release_all(plan_, memory_.device());
  fill_constants();
  const auto bound = [&](const CompiledModel& model, const Program& program, bool evaluates) {
    return bind_program(plan_, model.graph, program, communicator ? communicator->rank() : 0, memory_, model.code, evaluates);
  };
  bound_step_ = bound(*options.model, plan_.step, false);
  if (options.evaluation) bound_evaluate_ = bound(*options.evaluation, plan_.evaluate, true);
  if (options.one_row) bound_one_row_ = bound(*options.one_row, plan_.evaluate, true);
  const std::span<std::byte> arena = memory_.beside_nvme();
  if (with.store) {
    const StoreChannelOptions channel{.registered = std::span(&arena, 1)};
    readers_.emplace(with.store->open_channel(channel));
    writers_.emplace(with.store->open_channel(channel));
  }
  if (with.durability) {
    SPILLWAY_CHECK(with.store && (with.durability->interval == 1 || !speculates(plan_.choices)),
                   "steps made durable every {} steps", with.durability->interval);
    SPILLWAY_CHECK(makes_durable(plan_.choices), "steps are to be durable that have no commit");
    committer_.emplace(*with.durability, plan_, options.seed, model_hash(graph_), *with.store, *extents_, memory_, committers);
    if (with.durability->from) generations_.begin_with(committer_->resume());
  }
  if (communicator != nullptr && communicator->rank() == 0 && options.say)
    slow_collective_.emplace(*communicator, options.say, options.patience);
  runner_.emplace(operations_,
                  LaneRunner::Around{.channels = channels(),
                                     .extents = extents_.get(),
                                     .committer = committer_ ? &*committer_ : nullptr,
                                     .updates_held = &updates_held_,
                                     .device = with.device,
                                     .communicator = communicator,
                                     .slow_collective = slow_collective_ ? &*slow_collective_ : nullptr,
                                     .chain = plan_.choices.chain,
                                     .ahead = options.ahead},
                  std::max({plan_.step.ops.size() * static_cast<std::size_t>(shown_turns(turns_of(plan_.choices))),
                            plan_.evaluate.ops.size()}));
}

RankExecutor::~RankExecutor() {
  if (committer_) committer_->end();
}

// Prepares the device's backend before the device's memory is full, as it loads kernels there.
Device& RankExecutor::prepared(const ExecutorOptions& options, Device& device) {
  device.runtime().enter();
  for (const CompiledModel* model : {options.model, options.evaluation, options.one_row}) {
    if (model != nullptr) device.backend().prepare(*model);
  }
  return device;
}

By<Lane, StoreChannel*> RankExecutor::channels() {
  By<Lane, StoreChannel*> of;
  for (const Lane lane : kAll<Lane>) {
    std::optional<StoreChannel>& channel = is_upward(lane) ? readers_ : writers_;
    if (is_drive(lane) && channel) of[lane] = &*channel;
  }
  return of;
}

void RankExecutor::fill_constants() {
  if (plan_.constant_buffer < 0) return;
  const Constants& constants = options_.model->constants;
  std::vector<std::byte> content(static_cast<std::size_t>(constants.bytes));
  constants.fill(content);
  memory_.copy_in(Tier::device, plan_.resident[plan_.constant_buffer].offset, content);
}

// --- runs ---

// Fills `rows` rows of each micro-batch; those behind them are zeros.
void RankExecutor::fill_tokens(int token_set, int micro_batches, std::size_t rows, const FillTokens& fill) {
  constexpr std::int64_t at_once = 64 << 10;  // tokens: few copies, and little memory beside the plan
  const auto each = static_cast<std::size_t>(graph_.rows);
  const int most = static_cast<int>(std::clamp<std::int64_t>(at_once / graph_.rows, 1, micro_batches));
  for (int first = 0; first < micro_batches; first += most) {
    const int count = std::min(most, micro_batches - first);
    const std::size_t all = each * static_cast<std::size_t>(count);
    const int arrays = token_arrays(graph_);
    filled_.assign(static_cast<std::size_t>(arrays) * all, 0);
    for (int mb = 0; mb < count; ++mb) {
      const std::span filled = std::span(filled_).subspan(each * static_cast<std::size_t>(mb));
      fill(first + mb, {.tokens = filled.subspan(0, rows),
                        .targets = filled.subspan(all, rows),
                        .documents = graph_.has_documents ? filled.subspan(2 * all, rows) : std::span<std::int32_t>()});
    }
    for (int array = 0; array < arrays; ++array) {
      const std::span<const std::int32_t> filled = std::span(filled_).subspan(static_cast<std::size_t>(array) * all, all);
      memory_.copy_in(Tier::device, operations_.offset_of(static_cast<TokenArray>(array), token_set, first),
                      std::as_bytes(filled));
    }
  }
}

void RankExecutor::fill_step(const FillTokens& fill) {
  fill_tokens(runner_->next().index, plan_.choices.micro_batches, static_cast<std::size_t>(graph_.rows), fill);
}

// A run that applies nothing of a step before and leaves the state as it is.
Run& RankExecutor::next_run(const StepSettings& settings) {
  Run& run = runner_->next();
  run.step = &steps_[static_cast<std::size_t>(next_of_steps_++) % steps_.size()];
  run.step->begin(settings);
  run.waiting_step = nullptr;
  run.evaluates = false;
  run.turns = 1, run.update_turn = 0;
  run.alone = 0;
  run.logits.reset();
  run.before = run.after = generations_.present();
  run.commit.reset();
  run.token_set = 0;
  return run;
}

// A run for this purpose alone: kFlush or kCommitAlone.
Run& RankExecutor::next_alone(TurnSet alone) {
  Run& run = next_run({});
  run.alone = alone;
  return run;
}

// Sets the turns of a step's run. Its own updates are in its last turn, updates that waited in its first.
void RankExecutor::go_through_turns(Run& run) const {
  run.turns = turns_of(plan_.choices);
  run.update_turn = defers_all(plan_.choices) ? 0 : run.turns - 1;
}

void RankExecutor::begin_step(const StepSettings& settings) {
  SPILLWAY_CHECK((settings.clip > 0) == plan_.choices.clip, "clipping at {} under a plan made {} it", settings.clip,
                 plan_.choices.clip ? "with" : "without");
  SPILLWAY_CHECK(!settings.skips || plan_.choices.update != UpdateTime::in_backward,
                 "updates in the backward of a step that may apply nothing");
  Run& run = next_run(settings);
  run.waiting_step = waiting_step_;
  go_through_turns(run);
  // The commit lies between the updates that waited and the step's own.
  if (waiting_step_ != nullptr && defers_all(plan_.choices)) run.after = generations_.next(waiting_step_->settings.adamw.step);
  run.commit = generations_.take_due(holds_.load() > 0);
  if (!defers_all(plan_.choices)) run.after = generations_.next(settings.adamw.step);
  run.token_set = run.index;
  if (defers_any(plan_.choices)) waiting_step_ = run.step;
  runner_->begin(run, bound_step_);
}

// Runs a speculative step once more, with the factor known: the old slots still hold the state.
bool RankExecutor::begin_again() {
  const Run& first = *last_;
  const double factor = first.step->clip_factor;
  if (!speculates(plan_.choices) || first.step->is_stopped() || first.step->grad_norm <= 0 || factor >= 1) return false;
  runner_->check_idle("a speculative step");
  moved_before_ = first.moved;
  Run& run = next_run({});
  run.step = first.step;
  run.step->again();
  run.step->known_factor = factor;
  go_through_turns(run);
  run.before = first.before;
  run.after = first.after;
  run.token_set = first.token_set;
  runner_->begin(run, bound_step_);
  return true;
}

void RankExecutor::fill_forward(const std::optional<LogitsRequest>& request, const FillTokens& fill) {
  fill_tokens(0, 1, request && request->single_row ? 1 : static_cast<std::size_t>(graph_.rows), fill);
}

void RankExecutor::begin_forward(const std::optional<LogitsRequest>& request) {
  Run& run = next_run({});
  run.evaluates = true;
  run.logits = request;
  runner_->begin(run, request && request->single_row ? bound_one_row_ : bound_evaluate_);
}

bool RankExecutor::begin_flush() {
  if (waiting_step_ == nullptr) return false;
  Run& run = next_alone(kFlush);
  run.waiting_step = std::exchange(waiting_step_, nullptr);
  run.after = generations_.next(run.waiting_step->settings.adamw.step);
  runner_->begin(run, bound_step_);
  return true;
}

bool RankExecutor::begin_commit(std::int64_t step) {
  if (!committer_) return false;
  returned_step_ = std::max(returned_step_, step);
  acknowledge();
  const std::optional<Generation> due = generations_.take(step);
  if (!due) return false;
  Run& run = next_alone(kCommitAlone);
  run.commit = due;
  runner_->begin(run, bound_step_);
  return true;
}

void RankExecutor::acknowledge() {
  if (committer_) committer_->acknowledge(returned_step_);
}

StateHold RankExecutor::hold() { return StateHold(committer_ ? holds_ : updates_held_, plan_, memory_.device()); }

// --- results ---

std::size_t RankExecutor::shown_spans() const {
  return static_cast<std::size_t>(shown_turns(turns_of(plan_.choices))) * static_cast<std::size_t>(bound_step_.operations);
}

// The time at which the run's last operation ended; its lanes' threads may have reported that later.
double RankExecutor::end_of(const Run& run) const {
  double end_s = run.submitted_s;
  for (std::size_t i = 0; i < shown_spans(); ++i) end_s = std::max(end_s, run.spans[i].end_s);
  return end_s;
}

Timeline RankExecutor::timeline_of(const Run& run) const {
  Timeline timeline;
  timeline.spans.assign(run.spans.begin(), run.spans.begin() + static_cast<std::ptrdiff_t>(shown_spans()));
  double origin = timeline.spans.empty() ? 0 : timeline.spans.front().begin_s;
  for (const Span& span : timeline.spans) origin = std::min(origin, span.begin_s);
  for (Span& span : timeline.spans) span.begin_s -= origin, span.end_s -= origin;
  timeline.origin_s = origin;
  return timeline;
}

StepOutcome RankExecutor::outcome() {
  const Run& run = *last_;
  const StepControl& step = *run.step;
  StepOutcome outcome;
  outcome.step = returned_step_ = step.settings.adamw.step;
  outcome.loss = step.loss;
  outcome.grad_norm = step.grad_norm;
  outcome.mixture = step.mixture;
  outcome.stopped = step.why_stopped();
  outcome.skipped = step.why_skipped();
  if (step.is_stopped()) {
    const bool waits = defers_all(plan_.choices);
    generations_.roll_back(waits ? run.after : run.before);
    waiting_step_ = nullptr;
    outcome.state_intact = waits || speculates(plan_.choices) || !step.updates_began.load();
  }
  const double ended_s = end_of(run);
  outcome.seconds = ended_s - std::max(last_end_s_, run.submitted_s);
  last_end_s_ = ended_s;
  outcome.moved = std::exchange(moved_before_, {});
  for (const Lane lane : kAll<Lane>) outcome.moved[lane] += run.moved[lane];
  outcome.peak = runner_->peak();
  outcome.timeline = timeline_of(run);
  return outcome;
}

std::span<const float> RankExecutor::logits() {
  last_logits_.resize(static_cast<std::size_t>(graph_.logits_bytes) / sizeof(float));
  memory_.copy_out(Tier::device, operations_.logits_offset(), std::as_writable_bytes(std::span(last_logits_)));
  return last_logits_;
}

// --- state ---

namespace {

struct StateRange {
  int index = 0;  // index of the buffer
  Bytes begin = 0;
  const Buffer* buffer = nullptr;
};

StateRange range_of(const Plan& plan, int block, StateKind kind, std::int64_t element, std::size_t bytes) {
  const RestingArray* const array = plan.blocks.at(block).find(kind);
  SPILLWAY_CHECK(array != nullptr, "block {} has no such array", block);
  const Buffer& buffer = plan.resident[array->buffer];
  const Bytes begin = element * array->each();
  SPILLWAY_CHECK(begin % kExtentAlignment == 0 && begin + static_cast<Bytes>(bytes) <= buffer.bytes, "{}: bytes {} to {} of {}",
                 buffer.name.text(), begin, begin + static_cast<Bytes>(bytes), buffer.bytes);
  return {array->buffer, begin, &buffer};
}

}  // namespace

void RankExecutor::write_state(int block, StateKind kind, std::int64_t begin, std::span<const std::byte> data) {
  const StateRange range = range_of(plan_, block, kind, begin, data.size());
  if (in_memory(range.buffer->tier)) {
    memory_.copy_in(range.buffer->tier, range.buffer->offset + range.begin, data);
    if (extents_) extents_->note(range.index, 0, range.begin, data);
    return;
  }
  const int slot = present_slot(*range.buffer);
  const Bytes offset = range.buffer->offset + slot * range.buffer->bytes + range.begin;
  const IoSegment segment{offset, const_cast<std::byte*>(data.data()), static_cast<Bytes>(data.size())};
  writers_->write({&segment, 1});
  if (extents_) extents_->note(range.index, slot, range.begin, data);
}

void RankExecutor::read_state(int block, StateKind kind, std::int64_t begin, std::span<std::byte> data) {
  const StateRange range = range_of(plan_, block, kind, begin, data.size());
  if (in_memory(range.buffer->tier)) {
    memory_.copy_out(range.buffer->tier, range.buffer->offset + range.begin, data);
    return;
  }
  const int slot = present_slot(*range.buffer);
  const Bytes offset = range.buffer->offset + slot * range.buffer->bytes + range.begin;
  const IoSegment segment{offset, data.data(), static_cast<Bytes>(data.size())};
  readers_->read({&segment, 1});
  if (extents_) extents_->check(range.index, slot, range.begin, data);
}

}  // namespace spillway
