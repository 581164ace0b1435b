#include "memory/search/bound.h"

#include <algorithm>
#include <functional>

namespace spillway {

// --- lanes ---

// How fast two lanes are beside each other depends on what else runs: compute loses less to reads while writes slow these. A
// pair has the most that each of the two reaches in any company.
LaneBounds::LaneBounds(const MachineProfile& machine) {
  const LaneSpeeds speeds(machine);
  for (const Lane first : kAll<Lane>) {
    for (const Lane second : kAll<Lane>) {
      if (second <= first) continue;
      const LaneSet both = set_of(first) | set_of(second);
      Pair pair{first, second, 0, 0};
      for (LaneSet running = 0; running < 1U << kAll<Lane>.size(); ++running) {
        if ((running & both) != both) continue;
        pair.first_speed = std::max(pair.first_speed, speeds.while_running(running)[first]);
        pair.second_speed = std::max(pair.second_speed, speeds.while_running(running)[second]);
      }
      if (pair.first_speed < 1 || pair.second_speed < 1) pairs_.push_back(pair);
    }
  }
}

// One after the other, two lanes take the sum of their work. In a second in which both run, they do first_speed + second_speed
// seconds of it, so they save what that is above one. They run beside each other until one of them is done, at most.
LanesBound LaneBounds::of(const PerLane& busy_s) const {
  LanesBound bound;
  for (const Lane lane : kAll<Lane>) {
    if (busy_s[lane] > bound.seconds) bound = {.seconds = busy_s[lane], .lanes = set_of(lane), .lane = lane};
  }
  for (const Pair& pair : pairs_) {
    const double first_s = busy_s[pair.first], second_s = busy_s[pair.second];
    const double saved = pair.first_speed + pair.second_speed - 1;
    const double beside_s = saved > 0 ? std::min(first_s / pair.first_speed, second_s / pair.second_speed) : 0;
    const double seconds = first_s + second_s - saved * beside_s;
    constexpr double worth_a_name = 1.001;  // a report names a second lane where it adds more than a thousandth
    if (seconds <= worth_a_name * bound.seconds) continue;
    const Lane busier = first_s > second_s ? pair.first : pair.second;
    bound = {.seconds = seconds, .lanes = set_of(pair.first) | set_of(pair.second), .lane = busier};
  }
  return bound;
}

// --- the norm ---

namespace {

enum class Part : std::uint8_t { anywhere, within, rest };

// A step has two parts where updates wait for the norm. `within` begins with a norm and ends when compute comes to the last of
// the updated weights: it has all updates, and compute that uses updated weights before that moment. `rest` lasts from there to
// the next norm: it has all further compute, and sums of gradients. A step takes as long as both.
class NormParts {
 public:
  NormParts(const Plan& plan, const UnitGraph& graph) : plan_(plan), is_used_(graph.blocks.size()) {
    if (plan.choices.update == UpdateTime::in_backward) return;
    for (int id = 0; id < std::ssize(plan.step.ops); ++id) {
      const Op& op = plan.step.ops[id];
      if (op.lane != Lane::compute || op.unit < 0) continue;
      const Unit& unit = graph.units[op.unit];
      for (const int block : unit.blocks) {
        if (is_used_[block] || graph.blocks[block].frozen) continue;
        is_used_[block] = true;
        if (first_use_ < 0) first_use_ = id;
        last_use_ = id;
      }
    }
  }

  // The part of each operation that works in a turn. A read has that of what takes its bytes, a write that of what made them.
  std::vector<Part> of_turn(TurnSet turn) const {
    const std::vector<Op>& ops = plan_.step.ops;
    const int count = static_cast<int>(ops.size());
    std::vector<Part> parts(ops.size());
    if (last_use_ < 0) return parts;
    std::vector<Part> of_buffer(plan_.resident.size() + plan_.step.buffers.size());  // that of the operation visited last
    const auto visit = [&](int id, Role moved) {
      if ((ops[id].when & turn) == 0) return;
      const bool moves = link_of(ops[id].lane) != nullptr;
      if (!moves) parts[id] = part_of(id, turn);
      for (const Operand& operand : ops[id].operands) {
        const bool follows = moves && is_upward(ops[id].lane) == (moved == Role::to) && operand.role == moved;
        if (follows) parts[id] = of_buffer[operand.buffer];
      }
      for (const Operand& operand : ops[id].operands) {
        if (operand.buffer >= 0) of_buffer[operand.buffer] = parts[id];
      }
    };
    for (int id = count - 1; id >= 0; --id) visit(id, Role::to);
    for (int id = 0; id < count; ++id) visit(id, Role::from);
    return parts;
  }

 private:
  Part part_of(int id, TurnSet turn) const {
    const Op& op = plan_.step.ops[id];
    if (op.kind == OpKind::update) return op.block >= 0 && is_used_[op.block] ? Part::within : Part::anywhere;
    if (op.kind == OpKind::gradient_add || op.kind == OpKind::gradient_finish) return Part::rest;
    if (op.lane != Lane::compute) return Part::anywhere;
    if ((turn & kFirstTurn) == 0 || id >= last_use_) return Part::rest;
    return id >= first_use_ ? Part::within : Part::anywhere;  // before that, compute need not wait for the norm
  }

  const Plan& plan_;
  std::vector<bool> is_used_;           // a block, by compute
  int first_use_ = -1, last_use_ = -1;  // operations that use a block before all others do; -1: no update waits for the norm
};

// Bytes of memory for what comes and goes in a step.
Bytes room_of(const Plan& plan) {
  Bytes room = 0;
  for (const Tier tier : tiers_of(plan.choices.chain)) room += in_memory(tier) ? plan.peak[tier] : 0;
  for (const Buffer& buffer : plan.resident) room -= in_memory(buffer.tier) ? buffer.bytes * buffer.slots : 0;
  return std::max<Bytes>(0, room);
}

struct Move {
  Lane lane;
  double seconds, bytes;
};

// Seconds of moves that may lie outside their part: memory may hold bytes that are read before it begins or written after it
// ends. Each lane has all the room for these, and they are those that take longest.
PerLane held_seconds(std::vector<Move> moves, Bytes room) {
  std::ranges::sort(moves, std::greater{}, [](const Move& move) { return move.seconds / move.bytes; });
  PerLane left, held_s;
  std::ranges::fill(left, room);
  for (const Move& move : moves) {
    const double held = std::min(left[move.lane], move.bytes);
    left[move.lane] -= held;
    held_s[move.lane] += move.seconds * held / move.bytes;
  }
  return held_s;
}

void add(StepWork& work, Lane lane, double seconds, bool repeats) {
  work.all_s[lane] += seconds;
  if (repeats) work.repeated_s[lane] += seconds;
}

// Seconds of the work with so many times as many micro-batches.
PerLane grown(const StepWork& work, double times) {
  PerLane seconds;
  for (const Lane lane : kAll<Lane>)
    seconds[lane] = std::max(0.0, work.all_s[lane] + (times - 1) * work.repeated_s[lane] - work.held_s[lane]);
  return seconds;
}

}  // namespace

// --- a step ---

StepBound::StepBound(const Plan& plan, const UnitGraph& graph, const MachineProfile& machine)
    : lanes_(machine), micro_batches_(plan.choices.micro_batches), held_bytes_(room_of(plan)) {
  const std::vector<double> alone_s = seconds_alone(plan, graph, machine);
  const NormParts norm(plan, graph);
  std::vector<Move> moves_within, moves_of_rest;
  const int turns = turns_of(plan.choices), shown = shown_turns(turns);
  for (int turn = 0; turn < shown; ++turn) {
    const TurnSet set = turn_set(turn, shown, true);
    const int times = shown == kShownTurns && turn == 1 ? turns - 2 : 1;  // those in the middle are alike
    const std::vector<Part> parts = norm.of_turn(set);
    for (int id = 0; id < std::ssize(parts); ++id) {
      const Op& op = plan.step.ops[id];
      if ((op.when & set) == 0) continue;
      const bool repeats = turns > 1 ? (op.when & kMiddleTurns) != 0 : op.strip.first >= 0;
      const bool is_within = parts[id] == Part::within;
      add(step_, op.lane, times * alone_s[id], repeats);
      if (parts[id] == Part::anywhere) continue;
      add(is_within ? within_ : rest_, op.lane, times * alone_s[id], repeats);
      if (link_of(op.lane) == nullptr) continue;
      const double bytes = std::max(1.0, static_cast<double>(times * op.bytes));
      (is_within ? moves_within : moves_of_rest).push_back({op.lane, times * alone_s[id], bytes});
    }
  }
  within_.held_s = held_seconds(std::move(moves_within), held_bytes_);
  rest_.held_s = held_seconds(std::move(moves_of_rest), held_bytes_);
}

Bound StepBound::with_micro_batches(double count) const {
  const double times = count / micro_batches_;
  const PerLane within_s = grown(within_, times);
  const LanesBound step = lanes_.of(grown(step_, times)), within = lanes_.of(within_s), rest = lanes_.of(grown(rest_, times));
  constexpr double worth_telling = 1.001;  // that updates wait for the norm is said where it adds more than a thousandth
  if (within.seconds + rest.seconds <= worth_telling * step.seconds) return {.seconds = step.seconds, .within = step};
  return {.seconds = within.seconds + rest.seconds,
          .by_norm = true,
          .within = within,
          .rest = rest,
          .compute_within_s = within_s[Lane::compute],
          .held_bytes = held_bytes_};
}

}  // namespace spillway
