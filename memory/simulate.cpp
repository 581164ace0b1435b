#include "memory/simulate.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "memory/error.h"

namespace spillway {

double seconds_of(const MachineProfile& machine, const UnitGraph& graph, const Work& work) {
  const bool single = graph.dtype == DType::float32;
  double seconds = 0;
  if (work.gemm_flops > 0) {
    const double extra_rows = single ? machine.gemm_fp32_extra_rows : machine.gemm_bf16_extra_rows;
    const double rows = work.gemm_rows > 0 ? work.gemm_rows : static_cast<double>(graph.rows);
    const double flops = work.gemm_flops * (1 + extra_rows / std::max(rows, 1.0));
    seconds += flops / (single ? machine.gemm_fp32_flops : machine.gemm_bf16_flops);
  }
  if (work.attention_flops > 0)
    seconds += work.attention_flops / (single ? machine.attention_fp32_flops : machine.attention_bf16_flops);
  if (work.bytes > 0) {
    const double pointwise = single ? machine.pointwise_fp32_bytes : machine.pointwise_bf16_bytes;
    seconds += work.bytes / (pointwise > 0 ? pointwise : machine.memory_bytes);
  }
  return seconds / (single ? machine.layers_fp32 : machine.layers_bf16);
}

namespace {

// Seconds of a move: each request takes a while besides its bytes, as large and small requests show.
double move_s(const Op& op, double bytes_a_second, double small_requests_a_second) {
  const double large_s = static_cast<double>(kRequestBytes) / bytes_a_second;
  const double small_s = small_requests_a_second > 0 ? std::min(1 / small_requests_a_second, large_s) : 0;
  const double byte_s =
      std::min((large_s - small_s) / static_cast<double>(kRequestBytes - kSmallRequestBytes), 1 / bytes_a_second);
  const double request_s = large_s - byte_s * static_cast<double>(kRequestBytes);
  const std::int64_t requests = op.small_requests > 0 ? op.small_requests : (op.bytes + kRequestBytes - 1) / kRequestBytes;
  return byte_s * static_cast<double>(op.bytes) + request_s * static_cast<double>(requests);
}

// State that outlives the process is hashed while it is updated: so much longer takes an update then, of the same elements, on
// the machines where it was measured (tools/bench/run hashed_update: 1.7 to 1.9 times the time of the threads). It is more
// arithmetic in the same loop, and hardly depends on the memory that the profile is about.
constexpr double kHashedUpdate = 1.7;

// Passes take as long as their reads; writes go on beside them. Two threads of a server: 43 GB/s where all is read, 63 where
// y += x, 80 in updates, which read 16 of their 28 bytes. So much longer than by the rate of updates passes take for their bytes.
double time_by_update_rate(OpKind kind) {
  constexpr double read_by_update = 16.0 / 28;
  switch (kind) {
    case OpKind::gradient_finish: return 1 / read_by_update;
    case OpKind::gradient_add: return 8.0 / 12 / read_by_update;
    default: return 1;
  }
}

// Seconds of the operation's work at its lane's own rate. `hashes`: of state that is updated.
double alone(const Op& op, const MachineProfile& machine, const UnitGraph& graph, bool hashes) {
  switch (op.lane) {
    case Lane::nvme_read: return move_s(op, machine.nvme_read_bytes, machine.nvme_read_requests);
    case Lane::nvme_write: return move_s(op, machine.nvme_write_bytes, machine.nvme_write_requests);
    case Lane::update:
      return op.work.bytes / machine.update_bytes * time_by_update_rate(op.kind) *
             (hashes && op.kind == OpKind::update ? kHashedUpdate : 1);
    case Lane::network: return static_cast<double>(op.bytes) / machine.network_bytes;
    default: return seconds_of(machine, graph, op.work);
  }
}

struct Pair {
  Lane first, second;
  double first_speed, second_speed;  // of each while both run
};

// A machine without NVMe has no rates for it, and a plan for it no such operations.
double share_of(double mixed, double alone) { return alone > 0 ? mixed / alone : 1; }

// What reads and writes leave each other of the drive. It is apart from the other pairs, as these depend on it.
Pair drive_of(const MachineProfile& machine) {
  return {Lane::nvme_read, Lane::nvme_write, share_of(machine.nvme_mixed_read_bytes, machine.nvme_read_bytes),
          share_of(machine.nvme_mixed_write_bytes, machine.nvme_write_bytes)};
}

// What other lanes lose beside each other and beside a drive that moves at its whole rate, and it beside them.
std::array<Pair, 5> pairs_of(const MachineProfile& machine) {
  return {{{Lane::compute, Lane::update, machine.shared_compute, machine.shared_update},
           {Lane::compute, Lane::nvme_read, machine.compute_beside_read, machine.read_beside_compute},
           {Lane::compute, Lane::nvme_write, machine.compute_beside_write, machine.write_beside_compute},
           {Lane::update, Lane::nvme_read, machine.update_beside_read, 1},
           {Lane::update, Lane::nvme_write, machine.update_beside_write, 1}}};
}

// Two lanes that slow each other need at least this long: together where that gains, else one after the other.
double bound_of(double first_s, double second_s, const Pair& pair) {
  const double gain = pair.first_speed + pair.second_speed - 1;
  if (gain <= 0) return first_s + second_s;
  const double together = std::min(first_s / pair.first_speed, second_s / pair.second_speed);
  return first_s + second_s - together * gain;
}

enum class Steps : std::uint8_t { overlap, apart };

// The lanes as they run a program over and over: each one operation at a time, except that a drive has several moves under way,
// which share its rate by their sizes and complete in order, as far as their requests are in flight.
class Lanes {
 public:
  // `work_s`: of each operation, at its lane's own rate. `shown`: the round whose spans are wanted.
  Lanes(const Program& program, const MachineProfile& machine, const std::vector<double>& work_s, int rounds, int shown,
        Steps steps)
      : drive_(drive_of(machine)),
        pairs_(pairs_of(machine)),
        work_s_(work_s),
        count_(static_cast<int>(program.ops.size())),
        rounds_(rounds),
        shown_(shown),
        steps_(steps),
        done_(program.ops.size() * static_cast<std::size_t>(rounds)),
        ends_s_(static_cast<std::size_t>(rounds)),
        spans_(program.ops.size()) {
    first_wait_.reserve(program.ops.size() + 1);
    for (const Op& op : program.ops) {
      first_wait_.push_back(static_cast<int>(waits_.size()));
      waits_.insert(waits_.end(), op.waits.begin(), op.waits.end());
    }
    first_wait_.push_back(static_cast<int>(waits_.size()));
    for (int id = 0; id < count_; ++id) lane_of(program.ops[id].lane).operations.push_back(id);
    for (const Lane lane : {Lane::nvme_read, Lane::nvme_write}) {
      lane_of(lane).room = kMovesUnderWay;
      lane_of(lane).in_flight_s = kBytesInFlight / (lane == Lane::nvme_read ? machine.nvme_read_bytes : machine.nvme_write_bytes);
    }
  }

  void run() {
    do {
      for (State& lane : lanes_) start(lane);
    } while (advance());
    for (int lane = 0; lane < kLanes; ++lane)
      SPILLWAY_CHECK(is_through(lanes_[lane]), "the plan's waits form a circle at lane {}", lane);
  }

  double end_s(int round) const { return ends_s_[static_cast<std::size_t>(round)]; }
  std::vector<Span> take_spans() { return std::move(spans_); }

 private:
  struct UnderWay {
    int id = -1, round = 0;
    double work_s = 0;
    double left = 1;  // share of its work
  };
  struct State {
    std::vector<int> operations;
    std::size_t next = 0;  // among the operations, in this round
    int round = 0;
    int waits_over = 0;    // of the next
    int room = 1;
    std::array<UnderWay, kMovesUnderWay> under_way{};  // oldest first
    int count = 0;
    double in_flight_s = std::numeric_limits<double>::infinity();  // work of the requests that there may be
    int served = 0;       // of those under way, the oldest, whose requests are in flight
    double shared_s = 0;  // work of these, but for those at their end
  };
  State& lane_of(Lane lane) { return lanes_[static_cast<int>(lane)]; }
  bool run_both(const Pair& pair) { return lane_of(pair.first).count > 0 && lane_of(pair.second).count > 0; }

  bool is_through(const State& lane) const { return lane.operations.empty() || lane.round == rounds_; }

  // What the lane's next operation waited for stays over: the look begins where the last one ended.
  bool ready(State& lane, int id) const {
    if (steps_ == Steps::apart && completed_ < lane.round * count_) return false;
    const int count = first_wait_[id + 1] - first_wait_[id];
    for (; lane.waits_over < count; ++lane.waits_over) {
      const Wait& wait = waits_[first_wait_[id] + lane.waits_over];
      const int round = lane.round + wait.step;
      if (round >= 0 && !done_[round * count_ + wait.op]) return false;
    }
    return true;
  }

  void start(State& lane) {
    while (lane.count < lane.room && !is_through(lane)) {
      const int id = lane.operations[lane.next];
      if (!ready(lane, id)) return;
      lane.under_way[lane.count++] = {id, lane.round, work_s_[id], 1};
      if (lane.round == shown_) spans_[id].begin_s = now_s_;
      serve(lane);
      lane.waits_over = 0;
      if (++lane.next == lane.operations.size()) lane.next = 0, ++lane.round;
    }
  }

  void serve(State& lane) {
    lane.shared_s = 0;
    for (lane.served = 0; lane.served < lane.count && lane.shared_s < lane.in_flight_s; ++lane.served) {
      const UnderWay& move = lane.under_way[lane.served];
      if (move.left > 0) lane.shared_s += move.work_s;
    }
  }

  // To the next end of an operation's work; false where nothing is under way.
  bool advance() {
    std::array<double, kLanes> moves;  // of what a lane does alone: less where the drive goes both ways
    moves.fill(1);
    if (run_both(drive_)) {
      moves[static_cast<int>(drive_.first)] = drive_.first_speed;
      moves[static_cast<int>(drive_.second)] = drive_.second_speed;
    }
    std::array<double, kLanes> speed = moves;
    for (const Pair& pair : pairs_) {
      if (!run_both(pair)) continue;
      speed[static_cast<int>(pair.first)] *= 1 - (1 - pair.first_speed) * moves[static_cast<int>(pair.second)];
      speed[static_cast<int>(pair.second)] *= pair.second_speed;
    }
    double step_s = std::numeric_limits<double>::infinity();
    for (int l = 0; l < kLanes; ++l) {
      const State& lane = lanes_[l];
      for (int i = 0; i < lane.served; ++i) {
        if (lane.under_way[i].left > 0) step_s = std::min(step_s, lane.under_way[i].left * lane.shared_s / speed[l]);
      }
    }
    if (step_s == std::numeric_limits<double>::infinity()) return false;
    now_s_ += step_s;
    for (int l = 0; l < kLanes; ++l) {
      if (lanes_[l].count > 0) progress(lanes_[l], step_s * speed[l]);
    }
    return true;
  }

  void progress(State& lane, double seconds) {
    constexpr double instant_s = 1e-12;
    const double share = seconds / lane.shared_s;
    for (int i = 0; i < lane.served; ++i) {
      UnderWay& move = lane.under_way[i];
      move.left -= share;
      if (move.left * move.work_s <= instant_s) move.left = 0;
    }
    int completed = 0;
    for (; completed < lane.count && lane.under_way[completed].left <= 0; ++completed) {
      const auto [id, round, work_s, left] = lane.under_way[completed];
      ends_s_[static_cast<std::size_t>(round)] = now_s_;  // time only goes on
      if (round == shown_) spans_[id].end_s = now_s_;
      done_[round * count_ + id] = 1;
      ++completed_;
    }
    std::move(lane.under_way.begin() + completed, lane.under_way.begin() + lane.count, lane.under_way.begin());
    lane.count -= completed;
    serve(lane);
  }

  // Of one lane: what a channel of the store keeps in flight (nvme/store.h: depth times block).
  static constexpr double kBytesInFlight = 16 * kRequestBytes;

  const Pair drive_;
  const std::array<Pair, 5> pairs_;
  const std::vector<double>& work_s_;
  const int count_, rounds_, shown_;
  const Steps steps_;
  std::vector<Wait> waits_;      // operation after operation: they are looked at in every round
  std::vector<int> first_wait_;  // an operation: its first; and the end of the last one's
  std::array<State, kLanes> lanes_;
  std::vector<char> done_;       // round after round
  int completed_ = 0;
  std::vector<double> ends_s_;   // a round
  std::vector<Span> spans_;      // an operation of the round that is shown
  double now_s_ = 0;
};

}  // namespace

Bound bound_of(const std::array<double, kLanes>& busy_s, const MachineProfile& machine) {
  Bound bound;
  for (int lane = 0; lane < kLanes; ++lane) {
    if (busy_s[lane] > bound.seconds) bound = {busy_s[lane], static_cast<Lane>(lane)};
  }
  const auto weigh = [&](const Pair& pair) {
    const double first = busy_s[static_cast<int>(pair.first)], second = busy_s[static_cast<int>(pair.second)];
    const double seconds = bound_of(first, second, pair);
    if (seconds > bound.seconds) bound = {seconds, first >= second ? pair.first : pair.second};
  };
  weigh(drive_of(machine));
  for (const Pair& pair : pairs_of(machine)) weigh(pair);
  return bound;
}

Prediction simulate(const Plan& plan, const UnitGraph& graph, const MachineProfile& machine) {
  // The first round starts cold and the last has no successor beside its tail: what counts lies between.
  constexpr int kRounds = 5, kShown = 3;
  const Program& program = plan.step;
  const int count = static_cast<int>(program.ops.size());
  Prediction prediction;
  std::vector<double> work(count);
  for (int id = 0; id < count; ++id) {
    work[id] = alone(program.ops[id], machine, graph, plan.choices.slots == 2) + machine.operation_s;
    prediction.busy_s[static_cast<int>(program.ops[id].lane)] += work[id];
  }
  // A step that may be taken back is over before the next begins.
  Lanes lanes(program, machine, work, kRounds, kShown, speculates(plan.choices) ? Steps::apart : Steps::overlap);
  lanes.run();
  // Two steps, because a step may end early at the expense of the next.
  prediction.step_s = (lanes.end_s(kShown) - lanes.end_s(kShown - 2)) / 2;
  prediction.timeline.spans = lanes.take_spans();
  double origin = std::numeric_limits<double>::infinity();
  for (const Span& span : prediction.timeline.spans) origin = std::min(origin, span.begin_s);
  for (Span& span : prediction.timeline.spans) span.begin_s -= origin, span.end_s -= origin;

  const Bound bound = bound_of(prediction.busy_s, machine);
  prediction.bound_s = bound.seconds;
  prediction.binding_lane = bound.lane;
  return prediction;
}

}  // namespace spillway
