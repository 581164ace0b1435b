#include "memory/search/simulate.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "memory/base/error.h"

namespace spillway {

namespace {

enum class Steps : std::uint8_t { overlap, apart };

// One passage through the program: a turn of a step.
struct Round {
  TurnSet turn = kEveryTurn;
  bool begins_step = true;
  int shown = -1;  // its index among the turns whose spans are wanted; -1: its spans are not kept
  int completed = 0;
  double end_s = 0;
};

// The lanes as they run a program over and over. A lane runs one operation at a time, except that a drive has several moves under
// way: those whose requests are in flight share its rate by their sizes. Moves complete in order.
class Lanes {
 public:
  // `work_s`: [operations] seconds of work at the lane's own rate.
  Lanes(const Program& program, const MachineProfile& machine, const std::vector<double>& work_s, std::vector<Round> rounds,
        Steps steps)
      : speeds_(machine),
        work_s_(work_s),
        count_(static_cast<int>(program.ops.size())),
        rounds_(std::move(rounds)),
        steps_(steps),
        done_(program.ops.size() * rounds_.size()),
        spans_(program.ops.size() * static_cast<std::size_t>(1 + std::ranges::max(rounds_, {}, &Round::shown).shown)) {
    first_wait_.reserve(program.ops.size() + 1);
    when_.reserve(program.ops.size());
    for (const Op& op : program.ops) {
      when_.push_back(op.when);
      first_wait_.push_back(static_cast<int>(waits_.size()));
      waits_.insert(waits_.end(), op.waits.begin(), op.waits.end());
    }
    first_wait_.push_back(static_cast<int>(waits_.size()));
    for (int id = 0; id < count_; ++id) lanes_[program.ops[id].lane].operations.push_back(id);
    for (const Lane lane : kAll<Lane>) {
      if (!is_drive(lane)) continue;
      lanes_[lane].room = kMovesUnderWay;
      lanes_[lane].in_flight_s = kBytesInFlight / (machine.*rate_of(lane)->bytes);
    }
  }

  // Runs to the end of a round; later rounds have begun beside it by then.
  void run_through(int last) {
    do {
      for (State& lane : lanes_) start(lane);
    } while (round(last).completed < count_ && advance());
    for (const Lane lane : kAll<Lane>)
      SPILLWAY_CHECK(is_through(lanes_[lane], last), "the plan's waits form a circle at lane {}", name_of(lane));
  }

  double end_s(int round) const { return rounds_[static_cast<std::size_t>(round)].end_s; }
  std::vector<Span> take_spans() { return std::move(spans_); }

 private:
  struct UnderWay {
    int id = -1, round = 0;
    double work_s = 0;
    double left = 1;  // share of its work
  };
  struct State {
    std::vector<int> operations;
    std::size_t next = 0;  // index into operations of the one to start next, in this round
    int round = 0;
    int waits_over = 0;  // waits of the next operation that are known to be over
    int awaited = -1;    // index into done_ of an operation that the next one waits for; -1: nobody has looked
    int room = 1;
    std::array<UnderWay, kMovesUnderWay> under_way{};  // oldest first
    int count = 0;
    double in_flight_s = std::numeric_limits<double>::infinity();  // most work that requests in flight may have
    int served = 0;                                                // oldest moves under way whose requests are in flight
    double shared_s = 0;                                           // their work, without those that are at their end
  };
  bool is_through(const State& lane, int last) const { return lane.operations.empty() || lane.round > last; }
  Round& round(int index) { return rounds_[static_cast<std::size_t>(index)]; }
  Span& span(int shown, int id) { return spans_[static_cast<std::size_t>(shown * count_ + id)]; }

  // True when all waits of the lane's next operation are over. A wait that is over stays over, so each look begins where the last
  // one ended.
  bool ready(State& lane, int id) {
    if (steps_ == Steps::apart && round(lane.round).begins_step && completed_ < lane.round * count_) return false;
    const int count = first_wait_[id + 1] - first_wait_[id];
    for (; lane.waits_over < count; ++lane.waits_over) {
      const Wait& wait = waits_[first_wait_[id] + lane.waits_over];
      const int round = lane.round + wait.turn;
      if (round < 0 || done_[round * count_ + wait.op]) continue;
      lane.awaited = round * count_ + wait.op;
      return false;
    }
    return true;
  }

  void start(State& lane) {
    if (lane.awaited >= 0 && !done_[lane.awaited]) return;
    lane.awaited = -1;
    while (lane.count < lane.room && !is_through(lane, static_cast<int>(rounds_.size()) - 1)) {
      const int id = lane.operations[lane.next];
      if (!ready(lane, id)) return;
      const Round& of = round(lane.round);
      const bool skips = (when_[id] & of.turn) == 0 || work_s_[id] <= 0;
      lane.under_way[lane.count++] = {id, lane.round, skips ? 0 : work_s_[id], skips ? 0.0 : 1.0};
      if (of.shown >= 0) span(of.shown, id).begin_s = now_s_;
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

  // Advances time to the next end of an operation's work; false where nothing is under way.
  bool advance() {
    LaneSet running = 0;
    bool any_is_through = false;
    for (const Lane lane : kAll<Lane>) {
      if (lanes_[lane].count == 0) continue;
      running |= set_of(lane);
      any_is_through |= lanes_[lane].under_way[0].left <= 0;
    }
    if (any_is_through) {  // skipped operations take no time
      for (State& lane : lanes_) complete(lane);
      return true;
    }
    const PerLane& speed = speeds_.while_running(running);
    double step_s = std::numeric_limits<double>::infinity();
    for (const Lane lane : kAll<Lane>) {
      const State& of = lanes_[lane];
      for (int i = 0; i < of.served; ++i) {
        if (of.under_way[i].left > 0) step_s = std::min(step_s, of.under_way[i].left * of.shared_s / speed[lane]);
      }
    }
    if (step_s == std::numeric_limits<double>::infinity()) return false;
    now_s_ += step_s;
    for (const Lane lane : kAll<Lane>) {
      if (lanes_[lane].count > 0) progress(lanes_[lane], step_s * speed[lane]);
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
    complete(lane);
  }

  void complete(State& lane) {
    int completed = 0;
    for (; completed < lane.count && lane.under_way[completed].left <= 0; ++completed) {
      const auto [id, index, work_s, left] = lane.under_way[completed];
      Round& of = round(index);
      of.end_s = now_s_;  // time only goes on
      ++of.completed;
      if (of.shown >= 0) span(of.shown, id).end_s = now_s_;
      done_[index * count_ + id] = 1;
      ++completed_;
    }
    std::move(lane.under_way.begin() + completed, lane.under_way.begin() + lane.count, lane.under_way.begin());
    lane.count -= completed;
    serve(lane);
  }

  // Bytes that one lane, a channel of the store, keeps in flight (nvme/store.h: depth times block).
  static constexpr double kBytesInFlight = 16 * kRequestBytes;

  const LaneSpeeds speeds_;
  const std::vector<double>& work_s_;
  const int count_;
  std::vector<Round> rounds_;
  const Steps steps_;
  std::vector<Wait> waits_;      // operation after operation, in one array: every round looks at them
  std::vector<int> first_wait_;  // [operations + 1] index into waits_ of the operation's first
  std::vector<TurnSet> when_;    // [operations]
  By<Lane, State> lanes_;
  std::vector<char> done_;  // [rounds, operations]
  int completed_ = 0;
  std::vector<Span> spans_;  // [rounds shown, operations]
  double now_s_ = 0;
};

// Turns of a step that are simulated: the first, two from the middle and the last. The middle ones are alike.
constexpr int kTurnsGoneThrough = 4;

// `wanted`: how many of the step's shown turns have their spans in the timeline.
Prediction simulate(const Plan& plan, const UnitGraph& graph, const MachineProfile& machine, int wanted) {
  // The first step starts cold and the last has no successor beside its tail: the steps between count.
  constexpr int kSteps = 5, kShown = 3;
  const Program& program = plan.step;
  const int count = static_cast<int>(program.ops.size()), turns = turns_of(plan.choices),
            rounds = std::min(turns, kTurnsGoneThrough);
  Prediction prediction;
  const std::vector<double> work = seconds_alone(plan, graph, machine);
  for (int id = 0; id < count; ++id) prediction.busy_s[program.ops[id].lane] += times_in(program.ops[id].when, turns) * work[id];
  std::vector<Round> script;
  for (int step = 0; step < kSteps; ++step) {
    for (int round = 0; round < rounds; ++round) {
      script.push_back({.turn = turn_set(round, rounds, true), .begins_step = round == 0});
      for (int shown = 0; step == kShown && shown < wanted; ++shown) {
        if (shown_turn(shown, rounds) == round) script.back().shown = shown;
      }
    }
  }
  // A step that may be taken back is over before the next begins.
  Lanes lanes(program, machine, work, std::move(script), speculates(plan.choices) ? Steps::apart : Steps::overlap);
  lanes.run_through((kShown + 1) * rounds - 1);
  // Two steps, because a step may end early at the expense of the next.
  const auto end_s = [&](int step, int round) { return lanes.end_s(step * rounds + round); };
  prediction.step_s = (end_s(kShown, rounds - 1) - end_s(kShown - 2, rounds - 1)) / 2;
  // Seconds of the middle turns that were not simulated: everything behind them is later by so much.
  const double left_out_s = turns > rounds ? (turns - rounds) * (end_s(kShown, 2) - end_s(kShown, 1)) : 0;
  prediction.step_s += left_out_s;
  std::vector<Span>& spans = prediction.timeline.spans = lanes.take_spans();
  double origin = std::numeric_limits<double>::infinity();
  for (const Span& span : spans) origin = std::min(origin, span.begin_s);
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const double later_s = i / static_cast<std::size_t>(count) + 1 == kShownTurns ? left_out_s : 0;
    spans[i].begin_s += later_s - origin, spans[i].end_s += later_s - origin;
  }
  return prediction;
}

}  // namespace

double seconds_of_step(const Plan& plan, const UnitGraph& graph, const MachineProfile& machine) {
  return simulate(plan, graph, machine, 0).step_s;
}

Prediction predict(const Plan& plan, const UnitGraph& graph, const MachineProfile& machine) {
  Prediction prediction = simulate(plan, graph, machine, shown_turns(turns_of(plan.choices)));
  prediction.bound = StepBound(plan, graph, machine);
  return prediction;
}

}  // namespace spillway
