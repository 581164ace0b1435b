#include "offload/executor.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>

#include "memory/arena.h"
#include "memory/error.h"
#include "memory/runtime.h"
#include "offload/bound_program.h"
#include "offload/lane_progress.h"
#include "offload/nvme_lane.h"
#include "offload/optimizer_ops.h"

namespace spillway {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRunsUnderWay = 2;  // one runs its tail while the next begins

std::array<Lane, 4> lanes_in_use() { return {Lane::compute, Lane::nvme_read, Lane::nvme_write, Lane::update}; }

// One passage through a program.
struct Run {
  const BoundProgram* program = nullptr;
  bool evaluates = false;
  bool follows = false;                        // the run before was of the same program: waits on it mean something
  bool pending = false;                        // operations with Condition::pending do their work
  int slot_before = 0, slot_after = 0;         // of two-slot state
  int token_slot = 0;
  std::array<std::uint32_t, kLanes> base{};    // operations each lane had completed when this run began
  StepSettings settings;                       // of this run's forward and backward
  StepSettings update_settings;                // of the update that runs in it: of the step before where updates are deferred
  std::optional<double> known_factor;          // a step run again after its norm came out above the clip threshold
  bool speculates = false;

  std::atomic<int> lanes_left{0};
  std::atomic<bool> updates_done{false};
  std::vector<Span> spans;
  double submitted_s = 0;                      // since the executor was made, as spans are
  double loss = 0, grad_norm = 0, loss_sum = 0;
  Bytes nvme_read_bytes = 0, nvme_written_bytes = 0;  // each written by its lane alone
  std::string stopped;
};

}  // namespace

struct Executor::Impl {
  explicit Impl(const ExecutorOptions& given)
      : options(given), plan(*given.plan), graph(given.model->graph), pool(*given.pool), runtime(Runtime::make_cpu()),
        device(plan.peak[static_cast<int>(Tier::device)], "device"), optimizer(graph, plan.choices.form, pool) {
    // Backed before the channels register it, on huge pages where there are any, and so that no page fault falls into a step.
    device.prefault(pool);
    bound_step = bind_program(plan, plan.step, device.data(), given.model->ops);
    bound_flush = bind_program(plan, plan.flush, device.data(), given.model->ops);
    if (given.evaluation) bound_evaluate = bind_program(plan, plan.evaluate, device.data(), given.evaluation->ops);
    if (given.store) {
      const std::span<std::byte> arena(device.data(), static_cast<std::size_t>(device.bytes()));
      StoreChannelOptions channel{.registered = std::span(&arena, 1)};
      readers.emplace(given.store->open_channel(channel));
      writers.emplace(given.store->open_channel(channel));
    }
    for (Run& run : runs) run.spans.resize(std::max({plan.step.ops.size(), plan.flush.ops.size(), plan.evaluate.ops.size()}));
    for (const Lane lane : lanes_in_use()) streams[static_cast<int>(lane)] = runtime->make_stream();
    for (const Buffer& buffer : plan.resident) two_slots |= buffer.slots == 2;
  }

  // --- addresses ---

  std::byte* resident(int buffer) const { return device.data() + plan.resident[buffer].offset; }
  double* losses() const { return reinterpret_cast<double*>(resident(plan.loss_buffer)); }
  double* factor() const { return reinterpret_cast<double*>(resident(plan.factor_buffer)); }
  std::int32_t* tokens(int token_slot, int micro_batch, int which) const {
    auto* base = reinterpret_cast<std::int32_t*>(resident(plan.token_buffer));
    return base + ((static_cast<std::int64_t>(token_slot) * plan.choices.micro_batches + micro_batch) * 2 + which) * graph.rows;
  }

  // --- runs ---

  void begin(Run& run, const BoundProgram& program) {
    run.program = &program;
    run.evaluates = &program == &bound_evaluate;
    run.follows = last_program == &program;
    last_program = &program;
    run.base = total;
    for (int lane = 0; lane < kLanes; ++lane) total[lane] += static_cast<std::uint32_t>(program.lanes[lane].size());
    run.stopped.clear();
    run.loss = run.grad_norm = 0;
    run.nvme_read_bytes = run.nvme_written_bytes = 0;
    run.updates_done.store(false);
    run.submitted_s = seconds_now();
    run.lanes_left.store(static_cast<int>(lanes_in_use().size()));
    for (const Lane lane : lanes_in_use()) {
      lane_arguments[static_cast<int>(lane)][&run - runs.data()] = {this, &run, lane};
      streams[static_cast<int>(lane)]->run(&Impl::run_lane_of, &lane_arguments[static_cast<int>(lane)][&run - runs.data()]);
    }
  }

  struct LaneArgument {
    Impl* impl;
    Run* run;
    Lane lane;
  };
  static void run_lane_of(void* argument) {
    auto& lane = *static_cast<LaneArgument*>(argument);
    lane.impl->run_lane(*lane.run, lane.lane);
  }

  bool ready(const Run& run, const BoundOp& op) const {
    return std::all_of(op.waits.begin(), op.waits.end(), [&](const BoundWait& wait) { return !applies(run, wait) || progress.reached(wait.lane, target(run, wait)); });
  }
  void wait_until_ready(const Run& run, const BoundOp& op) const {
    for (const BoundWait& wait : op.waits) {
      if (applies(run, wait)) progress.wait(wait.lane, target(run, wait));
    }
  }
  static bool applies(const Run& run, const BoundWait& wait) { return !wait.step_before || run.follows; }
  static std::uint32_t target(const Run& run, const BoundWait& wait) {
    const int lane = static_cast<int>(wait.lane);
    const auto length = static_cast<std::uint32_t>(run.program->lanes[lane].size());
    return run.base[lane] + wait.place - (wait.step_before ? length : 0);
  }

  bool skipped(const Run& run, const BoundOp& op) const {
    return failed.load(std::memory_order_acquire) || (op.op->condition == Condition::pending && !run.pending) || (stopped_run && stopped_run != &run);
  }

  void run_lane(Run& run, Lane lane) {
    const auto& ops = run.program->lanes[static_cast<int>(lane)];
    if (lane == Lane::nvme_read || lane == Lane::nvme_write) {
      run_nvme(run, lane, ops);
    } else {
      for (const BoundOp& op : ops) {
        wait_until_ready(run, op);
        Span& span = run.spans[op.id];
        span.begin_s = seconds_now();
        try {
          fill_garbage(op);
          if (!skipped(run, op)) execute(run, op);
        } catch (...) {
          fail(std::current_exception());
        }
        span.end_s = seconds_now();
        note_peak(lane, op);
        progress.complete(lane);
      }
    }
    run.lanes_left.fetch_sub(1, std::memory_order_acq_rel);
    run.lanes_left.notify_all();
  }

  void run_nvme(Run& run, Lane lane, const std::vector<BoundOp>& ops) {
    auto& channel = lane == Lane::nvme_read ? readers : writers;
    NvmeLane moves(channel ? &*channel : nullptr, lane == Lane::nvme_read ? IoDirection::read : IoDirection::write);
    Bytes& moved = lane == Lane::nvme_read ? run.nvme_read_bytes : run.nvme_written_bytes;
    const auto complete_oldest = [&] {
      const int index = moves.oldest();
      try {
        if (moves.finish_oldest()) moved += ops[index].op->bytes;
      } catch (...) {
        fail(std::current_exception());
      }
      run.spans[ops[index].id].end_s = seconds_now();
      progress.complete(lane);
    };
    for (int index = 0; index < static_cast<int>(ops.size()); ++index) {
      const BoundOp& op = ops[index];
      // What is under way is completed first where the next operation must wait: it may be what others, and so it, wait for.
      while (moves.under_way() > 0 && (moves.full() || !ready(run, op))) complete_oldest();
      wait_until_ready(run, op);
      run.spans[op.id].begin_s = seconds_now();
      note_peak(lane, op);
      fill_garbage(op);
      try {
        moves.start(index, op, run.slot_before, run.slot_after, skipped(run, op));
      } catch (...) {
        fail(std::current_exception());
        moves.start(index, op, 0, 0, true);
      }
    }
    while (moves.under_way() > 0) complete_oldest();
  }

  double seconds_now() const { return std::chrono::duration<double>(Clock::now() - created).count(); }

  void note_peak(Lane lane, const BoundOp& op) {
    auto& mine = peaks[static_cast<int>(lane)];
    for (int tier = 0; tier < kTiers; ++tier) mine[tier] = std::max(mine[tier], op.end[tier]);
  }

  // In debug builds what an operation is the first to touch holds NaN, not what an earlier buffer left there.
  void fill_garbage(const BoundOp& op) const {
    for (const BoundRange& range : op.fresh) device.fill_garbage(range.begin, range.bytes);
  }

  void fail(std::exception_ptr error) {
    const std::lock_guard lock(end_mutex);
    if (!failure) failure = std::move(error);
    failed.store(true, std::memory_order_release);
  }

  void stop(Run& run, std::string reason) {
    const std::lock_guard lock(end_mutex);
    if (run.stopped.empty()) run.stopped = std::move(reason);
    stopped_run = &run;
  }

  // --- operations ---

  void execute(Run& run, const BoundOp& bound) {
    const Op& op = *bound.op;
    switch (op.kind) {
      case OpKind::forward:
      case OpKind::recompute:
      case OpKind::backward: return compute(run, bound);
      case OpKind::loss: return sum_losses(run);
      case OpKind::gradient_add: return optimizer.add_gradients(bound);
      case OpKind::gradient_finish:
        if (!optimizer.finish_gradient(bound, reinterpret_cast<double*>(resident(plan.norm_buffer)))) {
          stop(run, fmt::format("a gradient of {} is not finite", graph.blocks[op.block].name));
        }
        return;
      case OpKind::norm: return take_norm(run);
      case OpKind::update: return update(run, bound);
      case OpKind::read:
      case OpKind::write: break;
    }
    SPILLWAY_CHECK(false, "operation {} of kind {} on the {} lane", bound.id, name_of(op.kind), name_of(op.lane));
  }

  void compute(Run& run, const BoundOp& bound) {
    const Op& op = *bound.op;
    UnitCall call{.values = bound.values, .weights = bound.weights, .gradients = bound.gradients, .workspace = bound.workspace};
    call.tokens = tokens(run.token_slot, op.micro_batch, 0);
    call.targets = tokens(run.token_slot, op.micro_batch, 1);
    call.loss_sum = losses() + op.micro_batch;
    call.loss_scale = static_cast<float>(1.0 / static_cast<double>(run.settings.counted_tokens));
    call.gradient_mode = op.micro_batch == 0 ? GradientMode::write : GradientMode::accumulate;
    call.pass = op.kind == OpKind::recompute ? ForwardPass::recompute : ForwardPass::full;
    if (op.kind == OpKind::backward) {
      bound.unit->backward(call);
    } else {
      bound.unit->forward(call);
    }
  }

  void sum_losses(Run& run) {
    const int micro_batches = run.evaluates ? 1 : plan.choices.micro_batches;
    double sum = 0;
    for (int mb = 0; mb < micro_batches; ++mb) sum += losses()[mb];
    run.loss_sum = sum;
    run.loss = sum / static_cast<double>(run.settings.counted_tokens);
    if (!std::isfinite(run.loss) && !run.evaluates) stop(run, fmt::format("the loss is {}", std::isnan(run.loss) ? "NaN" : "infinite"));
  }

  void take_norm(Run& run) {
    const double norm = optimizer.norm(reinterpret_cast<const double*>(resident(plan.norm_buffer)));
    run.grad_norm = norm;
    if (!std::isfinite(norm)) stop(run, fmt::format("the gradient norm is {}", std::isnan(norm) ? "NaN" : "infinite"));
    factor()[0] = norm;
    // As PyTorch's clip_grad_norm_, in fp32 as there.
    const float scale = static_cast<float>(run.settings.clip) / (static_cast<float>(norm) + 1e-6f);
    factor()[1] = run.settings.clip > 0 ? std::min(1.0f, scale) : 1.0f;
  }

  void update(Run& run, const BoundOp& bound) {
    if (!run.stopped.empty()) return;
    const StepSettings& step = run.update_settings;
    double scale = 1;
    if (run.known_factor) {
      scale = *run.known_factor;
    } else if (plan.choices.update != UpdateTime::in_backward && plan.choices.clip) {
      scale = factor()[1];
    }
    run.updates_done.store(true, std::memory_order_relaxed);
    optimizer.update(bound, {.step = step.step, .lr = step.lr, .beta1 = step.beta1, .beta2 = step.beta2, .epsilon = step.epsilon,
                             .weight_decay = step.weight_decay, .gradient_scale = scale, .seed = options.seed});
  }

  // --- from outside ---

  Run& wait_for_oldest() {
    SPILLWAY_CHECK(waited < submitted, "no step is under way");
    Run& run = runs[waited++ % kRunsUnderWay];
    for (int left = run.lanes_left.load(std::memory_order_acquire); left > 0; left = run.lanes_left.load(std::memory_order_acquire)) {
      run.lanes_left.wait(left, std::memory_order_acquire);
    }
    if (failed.load(std::memory_order_acquire)) std::rethrow_exception(failure);
    return run;
  }

  Run& next_run() {
    SPILLWAY_CHECK(submitted - waited < kRunsUnderWay, "{} steps are under way already", kRunsUnderWay);
    return runs[submitted++ % kRunsUnderWay];
  }

  void check_idle(const char* what) const { SPILLWAY_CHECK(submitted == waited, "{} while a step is under way", what); }

  void prepare(Run& run, const StepSettings& settings) {
    run.settings = settings;
    run.known_factor.reset();
    const bool defers = plan.choices.update == UpdateTime::in_next_forward;
    run.speculates = plan.choices.update == UpdateTime::in_backward && plan.choices.clip;
    run.pending = defers && update_waits;
    run.update_settings = defers ? waiting_settings : settings;
    const bool updates = defers ? update_waits : true;
    run.slot_before = slot;
    run.slot_after = updates && two_slots ? 1 - slot : slot;
    run.token_slot = static_cast<int>((submitted - 1) % 2);
    slot = run.slot_after;
    if (defers) {
      update_waits = true;
      waiting_settings = settings;
    }
  }

  const ExecutorOptions options;
  const Plan& plan;
  const UnitGraph& graph;
  const ThreadPool& pool;
  std::unique_ptr<Runtime> runtime;
  Arena device;
  OptimizerOps optimizer;
  BoundProgram bound_step, bound_flush, bound_evaluate;
  std::optional<StoreChannel> readers, writers;
  bool two_slots = false;

  LaneProgress progress;
  std::array<std::uint32_t, kLanes> total{};
  const BoundProgram* last_program = nullptr;
  std::array<Run, kRunsUnderWay> runs;
  std::array<std::array<LaneArgument, kRunsUnderWay>, kLanes> lane_arguments{};
  std::int64_t submitted = 0, waited = 0;
  std::array<std::array<Bytes, kTiers>, kLanes> peaks{};
  const Clock::time_point created = Clock::now();
  double last_end_s = 0;

  std::mutex end_mutex;
  std::atomic<bool> failed{false};
  std::exception_ptr failure;
  std::atomic<const Run*> stopped_run{nullptr};

  int slot = 0;                       // that the next run reads state from
  bool update_waits = false;          // a step's gradients have not been applied
  StepSettings waiting_settings;

  std::array<std::unique_ptr<Stream>, kLanes> streams;  // last: their threads end before what they use
};

Executor::Executor(const ExecutorOptions& options) : impl_(std::make_unique<Impl>(options)) {}

Executor::~Executor() {
  for (auto& stream : impl_->streams) {
    if (stream) stream->synchronize();
  }
}

void Executor::submit(const StepSettings& settings, const FillTokens& fill) {
  SPILLWAY_CHECK((settings.clip > 0) == impl_->plan.choices.clip, "clipping at {} under a plan made {} it", settings.clip,
                 impl_->plan.choices.clip ? "with" : "without");
  Run& run = impl_->next_run();
  impl_->prepare(run, settings);
  for (int mb = 0; mb < impl_->plan.choices.micro_batches; ++mb) {
    const auto rows = static_cast<std::size_t>(impl_->graph.rows);
    fill(mb, {impl_->tokens(run.token_slot, mb, 0), rows}, {impl_->tokens(run.token_slot, mb, 1), rows});
  }
  impl_->begin(run, impl_->bound_step);
}

StepOutcome Executor::wait() {
  Impl& impl = *impl_;
  Run* run = &impl.wait_for_oldest();
  StepOutcome outcome;
  if (run->speculates && run->stopped.empty() && run->grad_norm > 0) {
    const double factor = impl.factor()[1];
    if (factor < 1) {
      // The norm says otherwise: the old slots still hold the state, so the step runs once more with the factor known.
      impl.check_idle("a speculative step");
      ++impl.submitted;
      run = &impl.runs[(impl.submitted - 1) % kRunsUnderWay];
      Run& first = impl.runs[(impl.submitted - 2) % kRunsUnderWay];
      outcome.nvme_read_bytes = first.nvme_read_bytes;
      outcome.nvme_written_bytes = first.nvme_written_bytes;
      run->settings = run->update_settings = first.settings;
      run->speculates = run->pending = false;
      run->known_factor = factor;
      run->slot_before = first.slot_before;
      run->slot_after = first.slot_after;
      run->token_slot = first.token_slot;
      impl.begin(*run, impl.bound_step);
      run = &impl.wait_for_oldest();
    }
  }
  outcome.step = run->settings.step;
  outcome.loss = run->loss;
  outcome.grad_norm = run->grad_norm;
  outcome.stopped = run->stopped;
  if (!run->stopped.empty()) {
    const bool defers = impl.plan.choices.update == UpdateTime::in_next_forward;
    impl.slot = defers ? run->slot_after : run->slot_before;
    impl.update_waits = false;
    outcome.state_intact = defers || !run->updates_done.load() || run->speculates || run->known_factor.has_value();
  }
  // When its last operation ended, not when its lanes' threads came round to say so.
  double ended_s = run->submitted_s;
  for (int id = 0; id < impl.bound_step.operations; ++id) ended_s = std::max(ended_s, run->spans[id].end_s);
  outcome.seconds = ended_s - std::max(impl.last_end_s, run->submitted_s);
  impl.last_end_s = ended_s;
  outcome.nvme_read_bytes += run->nvme_read_bytes;
  outcome.nvme_written_bytes += run->nvme_written_bytes;
  for (const auto& peaks : impl.peaks) {
    for (int tier = 0; tier < kTiers; ++tier) outcome.peak[tier] = std::max(outcome.peak[tier], peaks[tier]);
  }
  outcome.timeline.spans.assign(run->spans.begin(), run->spans.begin() + impl.bound_step.operations);
  double origin = outcome.timeline.spans.empty() ? 0 : outcome.timeline.spans.front().begin_s;
  for (const Span& span : outcome.timeline.spans) origin = std::min(origin, span.begin_s);
  for (Span& span : outcome.timeline.spans) span.begin_s -= origin, span.end_s -= origin;
  return outcome;
}

void Executor::flush() {
  Impl& impl = *impl_;
  impl.check_idle("flush");
  if (!impl.update_waits) return;
  Run& run = impl.next_run();
  run.settings = run.update_settings = impl.waiting_settings;
  run.known_factor.reset();
  run.speculates = run.pending = false;
  run.slot_before = impl.slot;
  run.slot_after = impl.two_slots ? 1 - impl.slot : impl.slot;
  impl.begin(run, impl.bound_flush);
  impl.wait_for_oldest();
  impl.slot = run.slot_after;
  impl.update_waits = false;
}

double Executor::evaluate(const FillTokens& fill) {
  Impl& impl = *impl_;
  impl.check_idle("evaluation");
  SPILLWAY_CHECK(impl.options.evaluation != nullptr, "no model was compiled for evaluation");
  flush();
  Run& run = impl.next_run();
  run.settings = {};
  run.known_factor.reset();
  run.speculates = run.pending = false;
  run.slot_before = run.slot_after = impl.slot;
  run.token_slot = 0;
  const auto rows = static_cast<std::size_t>(impl.graph.rows);
  fill(0, {impl.tokens(0, 0, 0), rows}, {impl.tokens(0, 0, 1), rows});
  impl.begin(run, impl.bound_evaluate);
  impl.wait_for_oldest();
  return run.loss_sum;
}

namespace {

struct StateRange {
  Bytes begin = 0;
  const Buffer* buffer = nullptr;
};

StateRange range_of(const Plan& plan, int block, StateKind kind, std::int64_t element, std::size_t bytes) {
  const int index = plan.state_buffer.at(block)[static_cast<int>(kind)];
  SPILLWAY_CHECK(index >= 0, "block {} has no such array", block);
  const Buffer& buffer = plan.resident[index];
  const Bytes begin = element * bytes_per_element(plan.choices.form, kind);
  SPILLWAY_CHECK(begin % kExtentAlignment == 0 && begin + static_cast<Bytes>(bytes) <= buffer.bytes, "{}: bytes {} to {} of {}", buffer.name, begin,
                 begin + static_cast<Bytes>(bytes), buffer.bytes);
  return {begin, &buffer};
}

}  // namespace

void Executor::write_state(int block, StateKind kind, std::int64_t begin, std::span<const std::byte> data) {
  impl_->check_idle("writing state");
  const StateRange range = range_of(impl_->plan, block, kind, begin, data.size());
  if (range.buffer->tier == Tier::device) {
    std::memcpy(impl_->device.data() + range.buffer->offset + range.begin, data.data(), data.size());
    return;
  }
  const Bytes offset = range.buffer->offset + range.begin + (range.buffer->slots == 2 ? impl_->slot * range.buffer->bytes : 0);
  const IoSegment segment{offset, const_cast<std::byte*>(data.data()), static_cast<Bytes>(data.size())};
  impl_->writers->write({&segment, 1});
}

void Executor::read_state(int block, StateKind kind, std::int64_t begin, std::span<std::byte> data) {
  impl_->check_idle("reading state");
  SPILLWAY_CHECK(!impl_->update_waits, "reading state with an update pending");
  const StateRange range = range_of(impl_->plan, block, kind, begin, data.size());
  if (range.buffer->tier == Tier::device) {
    std::memcpy(data.data(), impl_->device.data() + range.buffer->offset + range.begin, data.size());
    return;
  }
  const Bytes offset = range.buffer->offset + range.begin + (range.buffer->slots == 2 ? impl_->slot * range.buffer->bytes : 0);
  const IoSegment segment{offset, data.data(), static_cast<Bytes>(data.size())};
  impl_->readers->read({&segment, 1});
}

}  // namespace spillway
