#include "memory/simulate.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "memory/error.h"

namespace spillway {

namespace {

enum class Steps : std::uint8_t { overlap, apart };

// The lanes as they run a program over and over: each one operation at a time, except that a drive has several moves under way,
// which share its rate by their sizes and complete in order, as far as their requests are in flight.
class Lanes {
 public:
  // `work_s`: of each operation, at its lane's own rate. `shown`: the round whose spans are wanted.
  Lanes(const Program& program, const MachineProfile& machine, const std::vector<double>& work_s, int rounds, int shown,
        Steps steps)
      : speeds_(machine),
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
    LaneSet running = 0;
    for (int l = 0; l < kLanes; ++l) running |= lanes_[l].count > 0 ? set_of(static_cast<Lane>(l)) : 0;
    const PerLane& speed = speeds_.while_running(running);
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

  const LaneSpeeds speeds_;
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

Prediction simulate(const Plan& plan, const UnitGraph& graph, const MachineProfile& machine) {
  // The first round starts cold and the last has no successor beside its tail: what counts lies between.
  constexpr int kRounds = 5, kShown = 3;
  const Program& program = plan.step;
  const int count = static_cast<int>(program.ops.size());
  Prediction prediction;
  const std::vector<double> work = seconds_alone(plan, graph, machine);
  for (int id = 0; id < count; ++id) prediction.busy_s[static_cast<int>(program.ops[id].lane)] += work[id];
  // A step that may be taken back is over before the next begins.
  Lanes lanes(program, machine, work, kRounds, kShown, speculates(plan.choices) ? Steps::apart : Steps::overlap);
  lanes.run();
  // Two steps, because a step may end early at the expense of the next.
  prediction.step_s = (lanes.end_s(kShown) - lanes.end_s(kShown - 2)) / 2;
  prediction.timeline.spans = lanes.take_spans();
  double origin = std::numeric_limits<double>::infinity();
  for (const Span& span : prediction.timeline.spans) origin = std::min(origin, span.begin_s);
  for (Span& span : prediction.timeline.spans) span.begin_s -= origin, span.end_s -= origin;
  return prediction;
}

Prediction predict(const Plan& plan, const UnitGraph& graph, const MachineProfile& machine) {
  Prediction prediction = simulate(plan, graph, machine);
  prediction.bound = StepBound(plan, graph, machine);
  return prediction;
}

}  // namespace spillway
