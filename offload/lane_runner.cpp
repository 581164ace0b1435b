#include "offload/lane_runner.h"

#include <algorithm>
#include <span>
#include <utility>

#include "memory/base/error.h"
#include "memory/base/prompt_thread.h"
#include "offload/nvme_lane.h"

namespace spillway {
namespace {

// The time between checks whether the next operation may start: short beside a move of the smallest unit, long beside a check.
constexpr std::chrono::microseconds kGlance(1000);

// The lanes that compute, update and commit, that of ranks, and those that move bytes across the chain's links.
std::vector<Lane> lanes_of(Chain chain, bool has_ranks) {
  std::vector<Lane> lanes = {Lane::compute, Lane::update, Lane::commit};
  if (has_ranks) lanes.push_back(Lane::network);
  const std::span<const Tier> tiers = tiers_of(chain);
  for (std::size_t i = 1; i < tiers.size(); ++i) {
    lanes.push_back(lane_between(tiers[i], tiers[i - 1]));
    lanes.push_back(lane_between(tiers[i - 1], tiers[i]));
  }
  return lanes;
}

// True when a wait applies: a wait for the turn before the run's first only where the run before was of the same program.
bool applies(const Run& run, int turn, const BoundWait& wait) { return !wait.turn_before || turn > 0 || run.follows; }

std::uint32_t target(const Run& run, int turn, const BoundWait& wait) {
  const auto length = static_cast<std::uint32_t>(run.program->lanes[wait.lane].size());
  return run.base[wait.lane] + static_cast<std::uint32_t>(turn) * length + wait.place - (wait.turn_before ? length : 0);
}

// The span of an operation; null in turns whose times are not kept.
Span* span_of(Run& run, int turn, int id) {
  for (int shown = 0; shown < shown_turns(run.turns); ++shown) {
    if (shown_turn(shown, run.turns) == turn) return &run.spans[static_cast<std::size_t>(shown * run.program->operations + id)];
  }
  return nullptr;
}

// The device's error with the operation's name added, so that its reader knows what ran.
std::exception_ptr named(const std::exception_ptr& error, const BoundOp& op) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return std::make_exception_ptr(
        Error(known.exit_code(), fmt::format("operation {}, {}: {}", op.id, op.name, known.what()), known.help()));
  } catch (...) {
    return error;
  }
}

std::string reason_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an unknown error";
  }
}

}  // namespace

LaneRunner::LaneRunner(Operations& operations, const Around& around, std::size_t most_operations)
    : operations_(operations),
      around_(around),
      lanes_(lanes_of(around.chain, around.communicator != nullptr)),
      runtime_(Runtime::make_cpu()) {
  for (Run& run : runs_) {
    run.index = static_cast<int>(&run - runs_.data());
    run.spans.resize(most_operations);  // those of all shown turns
  }
  for (const Lane lane : lanes_) {
    Stream* of_device = lane == Lane::compute ? around.device->compute_stream() : nullptr;
    if (is_copy(lane)) of_device = (copies_[lane] = around.device->runtime().make_stream()).get();
    if (of_device != nullptr) {
      enqueued_[lane] = std::make_unique<EnqueuedLane>(
          around.device->runtime(), *of_device, around.ahead,
          [this, lane](const EnqueuedLane::Ticket& ticket, bool is_complete) { complete(lane, ticket, is_complete); });
    }
    auto& stream = streams_[lane] = runtime_->make_stream();
    // Only a drive's lanes are made prompt: a computing lane that waits for the rest of its own work would be in the way of the
    // other threads that do it.
    if (is_drive(lane)) stream->run([](void*) { make_thread_prompt(); }, nullptr);
  }
}

LaneRunner::~LaneRunner() {
  for (auto& stream : streams_) {
    if (stream) stream->synchronize();
  }
}

Run& LaneRunner::next() {
  SPILLWAY_CHECK(submitted_ - waited_ < kRunsUnderWay, "{} steps are under way already", kRunsUnderWay);
  Run& run = runs_[submitted_ % kRunsUnderWay];
  run.number = submitted_;
  return run;
}

void LaneRunner::begin(Run& run, const BoundProgram& program) {
  SPILLWAY_CHECK(run.number == submitted_, "run {} begins in place of run {}", run.number, submitted_);
  ++submitted_;
  run.program = &program;
  run.follows = last_program_ == &program;
  last_program_ = &program;
  run.base = total_;
  for (const Lane lane : kAll<Lane>)
    total_[lane] += static_cast<std::uint32_t>(program.lanes[lane].size() * static_cast<std::size_t>(run.turns));
  run.moved = {};
  run.submitted_s = seconds_now();
  run.lanes_left.store(static_cast<int>(lanes_.size()));
  for (const Lane lane : lanes_) {
    LaneArgument& argument = lane_arguments_[lane][run.index];
    argument = {this, &run, lane};
    streams_[lane]->run(&LaneRunner::run_lane_of, &argument);
  }
}

Run& LaneRunner::wait_for_oldest() {
  SPILLWAY_CHECK(waited_ < submitted_, "no step is under way");
  Run& run = runs_[waited_++ % kRunsUnderWay];
  for (int left = run.lanes_left.load(std::memory_order_acquire); left > 0;
       left = run.lanes_left.load(std::memory_order_acquire)) {
    run.lanes_left.wait(left, std::memory_order_acquire);
  }
  for (const auto& of_lane : run.peaks) {
    for (const Tier tier : kAll<Tier>) peak_[tier] = std::max(peak_[tier], of_lane[tier]);
  }
  throw_if_failed();
  return run;
}

void LaneRunner::throw_if_failed() const {
  if (failed_.load(std::memory_order_acquire)) std::rethrow_exception(failure_);
}

void LaneRunner::check_idle(const char* what) const {
  SPILLWAY_CHECK(submitted_ == waited_, "{} while a step is under way", what);
}

void LaneRunner::run_lane_of(void* argument) {
  const auto& lane = *static_cast<LaneArgument*>(argument);
  lane.runner->run_lane(*lane.run, lane.lane);
}

void LaneRunner::run_lane(Run& run, Lane lane) {
  const auto& ops = run.program->lanes[lane];
  if (enqueued_[lane]) return run_enqueued(run, *enqueued_[lane], ops);
  if (is_drive(lane)) {
    run_moves(run, lane, ops);
  } else {
    run_operations(run, lane, ops);
  }
  end_lane(run);
}

void LaneRunner::end_lane(Run& run) {
  run.lanes_left.fetch_sub(1, std::memory_order_acq_rel);
  run.lanes_left.notify_all();
}

void LaneRunner::run_enqueued(Run& run, EnqueuedLane& lane, const std::vector<BoundOp>& ops) {
  bool has_begun = false;
  for (int turn = 0; turn < run.turns; ++turn) {
    for (const BoundOp& op : ops) {
      wait_until_ready(run, turn, op);
      if (operations_.needs_verdict(op)) lane.drain();
      EnqueuedLane::Ticket ticket{.run = &run, .turn = turn, .op = &op, .enqueued_s = seconds_now()};
      note_peak(run, op.op->lane, op);
      guard(run, op);
      try {
        if (!skipped(run, turn, op)) {
          ticket.is_enqueued = true;
          if (op.op->kind == OpKind::move) {
            copy(op, lane.stream());
          } else {
            around_.device->runtime().enter();
            if (!std::exchange(has_begun, true)) operations_.begin_run(run);
            if (op.op->kind == OpKind::update) wait_until_state_may_change();
            around_.device->begin_range(op.name);
            operations_.start(run, turn, op);
            around_.device->end_range();
          }
        }
        lane.push(ticket);
      } catch (...) {
        fail(std::current_exception());
        ticket.is_enqueued = false;
        lane.push(ticket);
      }
    }
  }
  lane.push({.run = &run});
}

void LaneRunner::complete(Lane lane, const EnqueuedLane::Ticket& ticket, bool is_complete) {
  Run& run = *ticket.run;
  if (ticket.op == nullptr) return end_lane(run);
  const BoundOp& op = *ticket.op;
  if (!is_complete) fail(named(std::current_exception(), op));
  const double begin_s = std::max(ticket.enqueued_s, last_end_s_[lane]);
  const double end_s = last_end_s_[lane] = seconds_now();
  if (Span* const span = span_of(run, ticket.turn, op.id); span != nullptr) *span = {begin_s, end_s};
  if (ticket.is_enqueued && is_complete) {
    if (op.op->kind == OpKind::move) run.moved[lane] += op.op->bytes;
    if (operations_.gives_verdict(op)) {
      std::string reason = operations_.finish(run, op);
      if (!reason.empty()) stop(run, std::move(reason));
    }
  }
  pass(run, lane, ticket.turn, op);
}

void LaneRunner::copy(const BoundOp& op, Stream& stream) const {
  for (const BoundCopy& copy : op.move().copies) stream.copy_async(copy.to, copy.from, copy.bytes);
}

void LaneRunner::run_operations(Run& run, Lane lane, const std::vector<BoundOp>& ops) {
  for (int turn = 0; turn < run.turns; ++turn) {
    for (const BoundOp& op : ops) {
      wait_until_ready(run, turn, op);
      Span* const span = span_of(run, turn, op.id);
      if (span != nullptr) span->begin_s = seconds_now();
      guard(run, op);
      try {
        if (!skipped(run, turn, op)) {
          std::string reason = execute(run, turn, op);
          if (!reason.empty()) stop(run, std::move(reason));
        }
      } catch (...) {
        fail(std::current_exception());
      }
      if (span != nullptr) span->end_s = seconds_now();
      note_peak(run, lane, op);
      pass(run, lane, turn, op);
    }
  }
}

std::string LaneRunner::execute(Run& run, int turn, const BoundOp& op) {
  if (op.op->kind == OpKind::commit) {
    if (!run.commit) return {};
    // Operations behind the commit write over the state that is durable until then: without the commit none of them may begin.
    if (!around_.committer->wait_for_acknowledgement(run.commit->step)) throw IoError("the run ended before a step was taken up");
    if (!skipped(run, turn, op)) around_.committer->commit(*run.commit);  // checked again: the run may have failed meanwhile
    return {};
  }
  if (op.op->kind == OpKind::update) wait_until_state_may_change();
  return start(run, turn, op);
}

std::string LaneRunner::start(Run& run, int turn, const BoundOp& op) {
  if (op.op->lane != Lane::network) return operations_.start(run, turn, op);
  const Bytes before = around_.communicator->sent().all();
  if (around_.slow_collective != nullptr) around_.slow_collective->begin(op.id, op.name);
  std::string reason = operations_.start(run, turn, op);
  if (around_.slow_collective != nullptr) around_.slow_collective->end();
  run.moved[Lane::network] += around_.communicator->sent().all() - before;
  return reason;
}

void LaneRunner::run_moves(Run& run, Lane lane, const std::vector<BoundOp>& ops) {
  NvmeLane moves(around_.channels[lane], around_.extents, is_upward(lane) ? IoDirection::read : IoDirection::write);
  Bytes& moved = run.moved[lane];
  const int count = static_cast<int>(ops.size());
  const auto complete_oldest = [&] {
    const BoundOp& op = ops[static_cast<std::size_t>(moves.oldest() % count)];
    const int turn = moves.oldest() / count;
    try {
      if (moves.finish_oldest()) moved += op.op->bytes;
    } catch (...) {
      fail(std::current_exception());
    }
    if (Span* const span = span_of(run, turn, op.id); span != nullptr) span->end_s = seconds_now();
    pass(run, lane, turn, op);
  };
  const auto oldest_completes_soon = [&] {
    try {
      return moves.oldest_completes_within(kGlance);
    } catch (...) {
      return true;  // finishing it reports the error
    }
  };
  for (int index = 0; index < run.turns * count; ++index) {
    const BoundOp& op = ops[static_cast<std::size_t>(index % count)];
    const int turn = index / count;
    // While the next operation must wait, moves under way are completed: others may wait for them, and so may this one. But it
    // starts as soon as it may: a drive with little to do at a time is slow.
    while (moves.under_way() > 0 && (moves.full() || !ready(run, turn, op))) {
      if (moves.full() || oldest_completes_soon()) complete_oldest();
    }
    wait_until_ready(run, turn, op);
    if (Span* const span = span_of(run, turn, op.id); span != nullptr) span->begin_s = seconds_now();
    note_peak(run, lane, op);
    guard(run, op);
    try {
      moves.start(index, op, run, turn, skipped(run, turn, op));
    } catch (...) {
      fail(std::current_exception());
      moves.start(index, op, run, turn, true);
    }
  }
  while (moves.under_way() > 0) complete_oldest();
}

bool LaneRunner::ready(const Run& run, int turn, const BoundOp& op) const {
  return std::all_of(op.waits.begin(), op.waits.end(), [&](const BoundWait& wait) {
    return !applies(run, turn, wait) || progress_.reached(wait.lane, target(run, turn, wait));
  });
}

void LaneRunner::wait_until_ready(const Run& run, int turn, const BoundOp& op) const {
  for (const BoundWait& wait : op.waits) {
    if (applies(run, turn, wait)) progress_.wait(wait.lane, target(run, turn, wait));
  }
}

void LaneRunner::wait_until_state_may_change() const {
  for (int held = around_.updates_held->load(); held > 0; held = around_.updates_held->load()) around_.updates_held->wait(held);
}

bool LaneRunner::skipped(const Run& run, int turn, const BoundOp& op) const {
  if (failed_.load(std::memory_order_acquire) || (op.op->when & run.set_of(turn)) == 0) return true;
  // The run of a stopped step goes on, and applies the gradients that the step before left; the runs behind it do nothing. But
  // ranks learn of that at different times, and a collective needs all of them: these go on, over bytes that nobody uses.
  return op.op->lane != Lane::network && stopped_run_.load(std::memory_order_acquire) < run.number;
}

void LaneRunner::guard([[maybe_unused]] const Run& run, [[maybe_unused]] const BoundOp& op) {
  if (kGuardsBuffers && run.program->guard) run.program->guard->begin(op.id);
}

void LaneRunner::pass(const Run& run, Lane lane, int turn, const BoundOp& op) {
  if (kGuardsBuffers && run.program->guard) run.program->guard->end(op.id);
  // Who waits for it counts the lane's operations: so it must be the next by that count, too.
  const auto& ops = run.program->lanes[lane];
  const std::uint32_t before = run.base[lane] + static_cast<std::uint32_t>(turn * std::ssize(ops) + (&op - ops.data()));
  try {
    SPILLWAY_CHECK(progress_.count(lane) == before, "operation {}, {}: the {} lane has completed {} operations, not {}", op.id,
                   op.name, name_of(lane), progress_.count(lane), before);
  } catch (...) {
    fail(std::current_exception());
  }
  progress_.complete(lane);
}

void LaneRunner::note_peak(Run& run, Lane lane, const BoundOp& op) {
  auto& mine = run.peaks[lane];
  for (const Tier tier : kAll<Tier>) mine[tier] = std::max(mine[tier], op.end[tier]);
}

void LaneRunner::fail(std::exception_ptr error) {
  const std::lock_guard lock(end_mutex_);
  if (!failure_) failure_ = std::move(error);
  failed_.store(true, std::memory_order_release);
  if (around_.communicator != nullptr) around_.communicator->abort(reason_of(failure_));  // others would wait for this rank
}

void LaneRunner::stop(Run& run, std::string reason) {
  if (run.step->settings.skips) return run.step->skip(std::move(reason));
  run.step->stop(std::move(reason));
  const std::lock_guard lock(end_mutex_);
  stopped_run_.store(std::min(stopped_run_.load(), run.number), std::memory_order_release);
}

double LaneRunner::seconds_now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - created_).count();
}

}  // namespace spillway
