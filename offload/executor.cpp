#include "offload/executor.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "memory/base/error.h"
#include "memory/runtime/runtime.h"
#include "offload/bound_program.h"
#include "offload/buffer_guard.h"
#include "offload/lane_runner.h"
#include "offload/operations.h"
#include "offload/state_extents.h"
#include "offload/tier_memory.h"
#include "offload/update_hashes.h"

namespace spillway {

struct Executor::Impl {
  explicit Impl(const ExecutorOptions& given)
      : options(given),
        plan(*given.plan),
        graph(given.model->graph),
        memory(plan, prepared(given).runtime(), *given.pool),
        // State that does not outlive the process has no hashes.
        extents(given.durability ? std::make_unique<StateExtents>(given.durability->layout.state, given.store) : nullptr),
        update_hashes(extents ? std::make_unique<UpdateHashes>(*extents, plan, given.durability->interval) : nullptr),
        operations(plan, graph, *given.device, memory, given.pool->threads(), given.seed, update_hashes.get()),
        generations(plan.choices.slots == 2, given.durability ? given.durability->interval : 0) {
    if (kGuardsBuffers && memory.runtime().host_sees_device()) BufferGuard::release_all(plan, memory.device());
    fill_constants();
    bound_step = bind_program(plan, graph, plan.step, memory, given.model->code, false);
    if (given.evaluation)
      bound_evaluate = bind_program(plan, given.evaluation->graph, plan.evaluate, memory, given.evaluation->code, true);
    if (given.one_row) bound_one_row = bind_program(plan, given.one_row->graph, plan.evaluate, memory, given.one_row->code, true);
    const std::span<std::byte> arena = memory.beside_nvme();
    if (given.store) {
      const StoreChannelOptions channel{.registered = std::span(&arena, 1)};
      readers.emplace(given.store->open_channel(channel));
      writers.emplace(given.store->open_channel(channel));
    }
    if (given.durability) {
      SPILLWAY_CHECK(given.store && (given.durability->interval == 1 || !speculates(plan.choices)),
                     "steps made durable every {} steps", given.durability->interval);
      SPILLWAY_CHECK(makes_durable(plan.choices), "steps are to be durable that have no commit");
      committer.emplace(*given.durability, plan, given.seed, model_hash(graph), *given.store, *extents, memory);
      if (given.durability->from) generations.begin_with(committer->resume());
    }
    runner.emplace(operations,
                   LaneRunner::Around{.channels = channels(),
                                      .extents = extents.get(),
                                      .notes_writes = updates_see_state(plan.choices) ? NotesWrites::no : NotesWrites::yes,
                                      .committer = committer ? &*committer : nullptr,
                                      .updates_held = &updates_held,
                                      .device = given.device,
                                      .chain = plan.choices.chain,
                                      .ahead = given.ahead},
                   std::max({plan.step.ops.size() * static_cast<std::size_t>(shown_turns(turns_of(plan.choices))),
                             plan.evaluate.ops.size()}));
  }

  // Prepares the device's backend before the device's memory is full, as it loads kernels there.
  static Device& prepared(const ExecutorOptions& given) {
    given.device->runtime().enter();
    for (const CompiledModel* model : {given.model, given.evaluation, given.one_row}) {
      if (model != nullptr) given.device->backend().prepare(*model);
    }
    return *given.device;
  }

  By<Lane, StoreChannel*> channels() {
    By<Lane, StoreChannel*> of;
    for (const Lane lane : kAll<Lane>) {
      std::optional<StoreChannel>& channel = is_upward(lane) ? readers : writers;
      if (is_drive(lane) && channel) of[lane] = &*channel;
    }
    return of;
  }

  void fill_constants() {
    if (plan.constant_buffer < 0) return;
    const Constants& constants = options.model->constants;
    std::vector<std::byte> content(static_cast<std::size_t>(constants.bytes));
    constants.fill(content);
    memory.copy_in(Tier::device, plan.resident[plan.constant_buffer].offset, content);
  }

  // Fills `rows` tokens and targets of each micro-batch; those behind them are zeros.
  void fill_tokens(int token_set, int micro_batches, std::size_t rows, const FillTokens& fill) {
    constexpr std::int64_t at_once = 64 << 10;  // tokens: few copies, and little memory beside the plan
    const auto each = static_cast<std::size_t>(graph.rows);
    const int most = static_cast<int>(std::clamp<std::int64_t>(at_once / graph.rows, 1, micro_batches));
    for (int first = 0; first < micro_batches; first += most) {
      const int count = std::min(most, micro_batches - first);
      const std::size_t all = each * static_cast<std::size_t>(count);
      filled.assign(2 * all, 0);
      for (int mb = 0; mb < count; ++mb) {
        const std::size_t at = each * static_cast<std::size_t>(mb);
        fill(first + mb, std::span(filled).subspan(at, rows), std::span(filled).subspan(all + at, rows));
      }
      const std::span<const std::int32_t> tokens = std::span(filled).first(all), targets = std::span(filled).subspan(all);
      memory.copy_in(Tier::device, operations.tokens_offset(token_set, first), std::as_bytes(tokens));
      memory.copy_in(Tier::device, operations.targets_offset(token_set, first), std::as_bytes(targets));
    }
  }

  // The caller has come back, so it has made use of the step that wait() returned before. Evaluation and flush() do not
  // acknowledge: their results may be written down together with the step.
  void acknowledge() {
    if (committer) committer->acknowledge(returned_step);
  }

  // Slot of the present state in a buffer.
  int present_slot(const Buffer& buffer) const { return buffer.slots == 2 ? generations.present().slot : 0; }

  // A run that applies nothing of a step before and leaves the state as it is.
  Run& next_run(const StepSettings& settings) {
    Run& run = runner->next();
    run.step = &steps[static_cast<std::size_t>(next_of_steps++) % steps.size()];
    run.step->begin(settings);
    run.waiting_step = nullptr;
    run.evaluates = false;
    run.turns = 1, run.update_turn = 0;
    run.alone = 0;
    run.logits.reset();
    run.before = run.after = generations.present();
    run.commit.reset();
    run.token_set = 0;
    return run;
  }

  // A run for this purpose alone: kFlush or kCommitAlone.
  Run& next_alone(TurnSet alone) {
    Run& run = next_run({});
    run.alone = alone;
    return run;
  }

  Run& next_step(const StepSettings& settings) {
    Run& run = next_run(settings);
    run.waiting_step = waiting_step;
    go_through_turns(run);
    // The commit lies between the updates that waited and the step's own.
    if (waiting_step != nullptr && defers_all(plan.choices)) run.after = generations.next(waiting_step->settings.adamw.step);
    run.commit = generations.take_due(holds.load() > 0);
    if (!defers_all(plan.choices)) run.after = generations.next(settings.adamw.step);
    run.token_set = run.index;
    if (defers_any(plan.choices)) waiting_step = run.step;
    return run;
  }

  // Sets the turns of a step's run. Its own updates are in its last turn, updates that waited in its first.
  void go_through_turns(Run& run) const {
    run.turns = turns_of(plan.choices);
    run.update_turn = defers_all(plan.choices) ? 0 : run.turns - 1;
  }

  // Runs a speculative step once more, with the factor known, where its norm disagrees: the old slots still hold the state.
  Run& run_again(const Run& first, double factor) {
    runner->check_idle("a speculative step");
    Run& run = next_run({});
    run.step = first.step;
    run.step->again();
    run.step->known_factor = factor;
    go_through_turns(run);
    run.before = first.before;
    run.after = first.after;
    run.token_set = first.token_set;
    runner->begin(run, bound_step);
    return runner->wait_for_oldest();
  }

  std::size_t shown_spans() const {
    return static_cast<std::size_t>(shown_turns(turns_of(plan.choices))) * static_cast<std::size_t>(bound_step.operations);
  }

  // The time at which the run's last operation ended; its lanes' threads may have reported that later.
  double end_of(const Run& run) const {
    double end_s = run.submitted_s;
    for (std::size_t i = 0; i < shown_spans(); ++i) end_s = std::max(end_s, run.spans[i].end_s);
    return end_s;
  }

  Timeline timeline_of(const Run& run) const {
    Timeline timeline;
    timeline.spans.assign(run.spans.begin(), run.spans.begin() + static_cast<std::ptrdiff_t>(shown_spans()));
    double origin = timeline.spans.empty() ? 0 : timeline.spans.front().begin_s;
    for (const Span& span : timeline.spans) origin = std::min(origin, span.begin_s);
    for (Span& span : timeline.spans) span.begin_s -= origin, span.end_s -= origin;
    timeline.origin_s = origin;
    return timeline;
  }

  // Runs a forward over one micro-batch, or, with the units for it, over one row.
  Run& forward_only(const BoundProgram& program, const std::optional<LogitsRequest>& logits, const FillTokens& fill) {
    Run& run = next_run({});
    run.evaluates = true;
    run.logits = logits;
    const std::size_t rows = &program == &bound_one_row ? 1 : static_cast<std::size_t>(graph.rows);
    fill_tokens(0, 1, rows, fill);
    runner->begin(run, program);
    return runner->wait_for_oldest();
  }

  const ExecutorOptions options;
  const Plan& plan;
  const UnitGraph& graph;
  TierMemory memory;
  const std::unique_ptr<StateExtents> extents;        // null where state is not durable
  const std::unique_ptr<UpdateHashes> update_hashes;  // the same
  Operations operations;
  BoundProgram bound_step, bound_evaluate, bound_one_row;
  std::optional<StoreChannel> readers, writers;
  std::vector<std::int32_t> filled;  // tokens and targets of some micro-batches, on their way to the device
  std::vector<float> last_logits;    // logits of the last forward
  std::optional<Committer> committer;
  Generations generations;

  double last_end_s = 0;
  std::atomic<int> holds{0};         // holds of durable state: no other state becomes durable meanwhile
  std::atomic<int> updates_held{0};  // holds of state that is not durable
  std::int64_t returned_step = -1;   // the last step that wait() returned
  // Control blocks of the two steps that may be under way, and of the step before whose gradients the older of them applies.
  std::array<StepControl, 3> steps;
  std::int64_t next_of_steps = 0;
  StepControl* waiting_step = nullptr;  // the step whose gradients have not been applied; null: there is none

  std::optional<LaneRunner> runner;  // last: its threads end before what they use
};

Executor::Executor(const ExecutorOptions& options) : impl_(std::make_unique<Impl>(options)) {}

Executor::~Executor() {
  if (impl_->committer) impl_->committer->end();
}

void Executor::submit(const StepSettings& settings, const FillTokens& fill) {
  Impl& impl = *impl_;
  SPILLWAY_CHECK((settings.clip > 0) == impl.plan.choices.clip, "clipping at {} under a plan made {} it", settings.clip,
                 impl.plan.choices.clip ? "with" : "without");
  impl.acknowledge();
  // Tokens are filled before the step is begun: where that throws, there was no step.
  const int token_set = impl.runner->next().index;
  impl.fill_tokens(token_set, impl.plan.choices.micro_batches, static_cast<std::size_t>(impl.graph.rows), fill);
  Run& run = impl.next_step(settings);
  impl.runner->begin(run, impl.bound_step);
}

StepOutcome Executor::wait() {
  Impl& impl = *impl_;
  impl.acknowledge();
  Run* run = &impl.runner->wait_for_oldest();
  StepOutcome outcome;
  const bool speculated = speculates(impl.plan.choices);
  if (speculated && !run->step->is_stopped() && run->step->grad_norm > 0) {
    const double factor = run->step->clip_factor;
    if (factor < 1) {
      outcome.moved = run->moved;
      run = &impl.run_again(*run, factor);
    }
  }
  const StepControl& step = *run->step;
  outcome.step = step.settings.adamw.step;
  impl.returned_step = outcome.step;
  outcome.loss = step.loss;
  outcome.grad_norm = step.grad_norm;
  outcome.stopped = step.why_stopped();
  if (step.is_stopped()) {
    const bool waits = defers_all(impl.plan.choices);
    impl.generations.roll_back(waits ? run->after : run->before);
    impl.waiting_step = nullptr;
    outcome.state_intact = waits || speculated || !step.updates_began.load();
  }
  const double ended_s = impl.end_of(*run);
  outcome.seconds = ended_s - std::max(impl.last_end_s, run->submitted_s);
  impl.last_end_s = ended_s;
  for (const Lane lane : kAll<Lane>) outcome.moved[lane] += run->moved[lane];
  outcome.peak = impl.runner->peak();
  outcome.timeline = impl.timeline_of(*run);
  return outcome;
}

void Executor::flush() {
  Impl& impl = *impl_;
  impl.runner->check_idle("flush");
  if (impl.waiting_step == nullptr) return;
  Run& run = impl.next_alone(kFlush);
  run.waiting_step = std::exchange(impl.waiting_step, nullptr);
  run.after = impl.generations.next(run.waiting_step->settings.adamw.step);
  impl.runner->begin(run, impl.bound_step);
  impl.runner->wait_for_oldest();
}

StateHold Executor::hold_state(std::int64_t step) {
  Impl& impl = *impl_;
  impl.runner->check_idle("holding the state");
  SPILLWAY_CHECK(impl.waiting_step == nullptr, "the state after step {} cannot be held: an update is waiting", step);
  const std::span<const std::byte> arena = impl.memory.device();
  if (!impl.committer) return StateHold(impl.updates_held, impl.plan, arena);
  impl.returned_step = std::max(impl.returned_step, step);
  impl.acknowledge();
  if (const std::optional<Generation> due = impl.generations.take(step)) {
    Run& run = impl.next_alone(kCommitAlone);
    run.commit = due;
    impl.runner->begin(run, impl.bound_step);
    impl.runner->wait_for_oldest();
  }
  return StateHold(impl.holds, impl.plan, arena);
}

double Executor::evaluate(const FillTokens& fill) {
  Impl& impl = *impl_;
  impl.runner->check_idle("evaluation");
  SPILLWAY_CHECK(impl.options.evaluation != nullptr, "no model was compiled for evaluation");
  flush();
  return impl.forward_only(impl.bound_evaluate, std::nullopt, fill).step->loss_sum;
}

std::span<const float> Executor::logits(const LogitsRequest& request, const FillTokens& fill) {
  Impl& impl = *impl_;
  impl.runner->check_idle("evaluation");
  SPILLWAY_CHECK((request.single_row ? impl.options.one_row : impl.options.evaluation) != nullptr,
                 "no model was compiled for it");
  SPILLWAY_CHECK(impl.plan.logits_buffer >= 0, "the plan has no room for logits");
  flush();
  impl.forward_only(request.single_row ? impl.bound_one_row : impl.bound_evaluate, request, fill);
  impl.last_logits.resize(static_cast<std::size_t>(impl.graph.logits_bytes) / sizeof(float));
  impl.memory.copy_out(Tier::device, impl.operations.logits_offset(), std::as_writable_bytes(std::span(impl.last_logits)));
  return impl.last_logits;
}

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

void Executor::write_state(int block, StateKind kind, std::int64_t begin, std::span<const std::byte> data) {
  impl_->runner->check_idle("writing state");
  const StateRange range = range_of(impl_->plan, block, kind, begin, data.size());
  if (in_memory(range.buffer->tier)) {
    impl_->memory.copy_in(range.buffer->tier, range.buffer->offset + range.begin, data);
    if (impl_->extents) impl_->extents->note(range.index, 0, range.begin, data);
    return;
  }
  const int slot = impl_->present_slot(*range.buffer);
  const Bytes offset = range.buffer->offset + slot * range.buffer->bytes + range.begin;
  const IoSegment segment{offset, const_cast<std::byte*>(data.data()), static_cast<Bytes>(data.size())};
  impl_->writers->write({&segment, 1});
  if (impl_->extents) impl_->extents->note(range.index, slot, range.begin, data);
}

void Executor::read_state(int block, StateKind kind, std::int64_t begin, std::span<std::byte> data) {
  impl_->runner->check_idle("reading state");
  SPILLWAY_CHECK(impl_->waiting_step == nullptr, "reading state with an update waiting");
  const StateRange range = range_of(impl_->plan, block, kind, begin, data.size());
  if (in_memory(range.buffer->tier)) {
    impl_->memory.copy_out(range.buffer->tier, range.buffer->offset + range.begin, data);
    return;
  }
  const int slot = impl_->present_slot(*range.buffer);
  const Bytes offset = range.buffer->offset + slot * range.buffer->bytes + range.begin;
  const IoSegment segment{offset, data.data(), static_cast<Bytes>(data.size())};
  impl_->readers->read({&segment, 1});
  if (impl_->extents) impl_->extents->check(range.index, slot, range.begin, data);
}

}  // namespace spillway
