#include "memory/search/bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "memory/error.h"

namespace spillway {
namespace {

// --- lanes beside each other ---

// The lanes that slow each other the most; the others count as if alone, copies too, which makes the bound less, never wrong.
constexpr std::array<Lane, 4> kSlowing = {Lane::compute, Lane::nvme_read, Lane::nvme_write, Lane::update};
constexpr int kSlowingLanes = static_cast<int>(kSlowing.size());
using Weights = std::array<double, kSlowingLanes>;

// sum of factor * weight <= most
struct Limit {
  Weights factor{};
  double most = 0;
};

// While the lanes of a set run, each does work at its speed: weights that are allowed weigh that at no more than a second a
// second.
std::vector<Limit> limits_of(const LaneSpeeds& speeds) {
  std::vector<Limit> limits;
  for (unsigned subset = 1; subset < 1U << kSlowingLanes; ++subset) {
    LaneSet running = 0;
    for (int i = 0; i < kSlowingLanes; ++i) running |= (subset >> i & 1) ? set_of(kSlowing[i]) : 0;
    Limit limit{.most = 1};
    for (int i = 0; i < kSlowingLanes; ++i) {
      if (subset >> i & 1) limit.factor[i] = speeds.while_running(running)[kSlowing[i]];
    }
    limits.push_back(limit);
  }
  for (int i = 0; i < kSlowingLanes; ++i) {
    Limit limit;
    limit.factor[i] = -1;  // no weight is below zero
    limits.push_back(limit);
  }
  return limits;
}

// Where so many limits are met with equality; nothing where they do not say one point.
std::optional<Weights> meeting_of(std::array<const Limit*, kSlowingLanes> met) {
  std::array<std::array<double, kSlowingLanes + 1>, kSlowingLanes> rows;
  for (int i = 0; i < kSlowingLanes; ++i) {
    std::copy(met[i]->factor.begin(), met[i]->factor.end(), rows[i].begin());
    rows[i].back() = met[i]->most;
  }
  for (int column = 0; column < kSlowingLanes; ++column) {
    const auto pivot = std::max_element(rows.begin() + column, rows.end(),
                                        [&](const auto& a, const auto& b) { return std::abs(a[column]) < std::abs(b[column]); });
    constexpr double nothing = 1e-9;
    if (std::abs((*pivot)[column]) < nothing) return std::nullopt;
    std::swap(*pivot, rows[column]);
    for (int row = 0; row < kSlowingLanes; ++row) {
      if (row == column) continue;
      const double factor = rows[row][column] / rows[column][column];
      for (int i = column; i <= kSlowingLanes; ++i) rows[row][i] -= factor * rows[column][i];
    }
  }
  Weights weights;
  for (int i = 0; i < kSlowingLanes; ++i) weights[i] = std::max(0.0, rows[i].back() / rows[i][i]);
  return weights;
}

double worst_of(const Weights& weights, const std::vector<Limit>& limits) {
  double worst = 0;
  for (const Limit& limit : limits) {
    double sum = 0;
    for (int i = 0; i < kSlowingLanes; ++i) sum += limit.factor[i] * weights[i];
    if (limit.most > 0) worst = std::max(worst, sum / limit.most);
  }
  return worst;
}

bool is_below(const Weights& a, const Weights& b) {
  constexpr double same = 1e-9;
  for (int i = 0; i < kSlowingLanes; ++i) {
    if (a[i] > b[i] + same) return false;
  }
  return true;
}

// The corners of all that is allowed: one of them weighs any work most.
std::vector<Weights> corners_of(const std::vector<Limit>& limits) {
  std::vector<Weights> corners;
  const std::size_t count = limits.size();
  const auto consider = [&](const std::array<const Limit*, kSlowingLanes>& met) {
    constexpr double outside = 1e-6;
    std::optional<Weights> weights = meeting_of(met);
    if (!weights) return;
    const double worst = worst_of(*weights, limits);
    if (worst > 1 + outside) return;
    for (double& weight : *weights) weight /= std::max(1.0, worst);
    if (std::ranges::any_of(corners, [&](const Weights& other) { return is_below(*weights, other); })) return;
    std::erase_if(corners, [&](const Weights& other) { return is_below(other, *weights); });
    corners.push_back(*weights);
  };
  for (std::size_t a = 0; a < count; ++a) {
    for (std::size_t b = a + 1; b < count; ++b) {
      for (std::size_t c = b + 1; c < count; ++c) {
        for (std::size_t d = c + 1; d < count; ++d) consider({&limits[a], &limits[b], &limits[c], &limits[d]});
      }
    }
  }
  return corners;
}

}  // namespace

// Weights y of lanes, not below zero, such that for every set of lanes that can run at once the sum of y times their speeds is at
// most 1. In a schedule of T seconds, let t be those in which just the lanes of set S ran: lane l then did speed(l, S) * t of its
// work. Summed over all sets, its work times y(l), over all lanes, is at most the sum of t, which is T. So the weighed work is a
// lower bound for all such y, and the best of these are corners of what the limits allow (and no bound that follows from the
// speeds alone is higher: linear programs are as good as their duals).
LaneBounds::LaneBounds(const MachineProfile& machine) {
  for (const Weights& corner : corners_of(limits_of(LaneSpeeds(machine)))) {
    PerLane weights;
    for (int i = 0; i < kSlowingLanes; ++i) weights[kSlowing[i]] = corner[i];
    weights_.push_back(weights);
  }
  for (const Lane lane : kAll<Lane>) {
    PerLane alone;
    alone[lane] = 1;
    weights_.push_back(alone);  // also where it is below another: of one lane is said more simply
  }
}

LanesBound LaneBounds::of(const PerLane& busy_s) const {
  LanesBound bound;
  const auto take = [&](const PerLane& weights, double seconds) {
    bound = {.seconds = seconds};
    double most = 0;
    for (const Lane lane : kAll<Lane>) {
      const double part = weights[lane] * busy_s[lane];
      if (part > 0.001 * seconds) bound.lanes |= set_of(lane);
      if (part > most) most = part, bound.lane = lane;
    }
  };
  // The last ones are lanes alone, which win where others say no more.
  for (const PerLane& weights : weights_) {
    double seconds = 0;
    for (const Lane lane : kAll<Lane>) seconds += weights[lane] * busy_s[lane];
    constexpr double no_less = 1 - 1e-9;
    if (seconds > 0 && seconds >= no_less * bound.seconds) take(weights, seconds);
  }
  return bound;
}

// --- phases ---

namespace {

// Whether a plan for more micro-batches has more of these: they are of micro-batches, or of all turns where there are many.
bool repeats_with_micro_batches(const Op& op, const Plan& plan) {
  return turns_of(plan.choices) > 1 ? (op.when & kMiddleTurns) != 0 : op.strip.first >= 0;
}

// Where operations lie in a step, told by the order of compute, which a plan fixes: its operations are at places 0, 1, ... and
// the norm is at the place after the last. Steps follow one another, so places go on: those of the next step are `period` higher.
//
// Each other operation that is placed starts no sooner than the end of place `after - 1`, and is complete before place `before`
// starts. From this follows the bound. Let X be the moment at which place x - 1 ends, and Y that at which a later place y starts,
// less than a period on. A step takes as long as from X to Y and from Y to the next X. What starts after X at the soonest and
// ends before Y at the latest takes the lanes, between these moments, at least what LaneBounds says; so does what starts after
// the end of y and ends before the start of the next x - 1; and compute lies between Y and the next X with all of its places from
// y on. Moves are different in one thing. A read may come before the moment that what it reads for must wait for, but its bytes
// are then in device memory at that moment; and a write may come after the moment by which what it writes is made, but they are
// there until then. There are no more of them than the plan has for what does not last: so many, those that are worth most, are
// taken off the reads of a part and off its writes.
class Places {
 public:
  Places(const Plan& plan, const UnitGraph& graph, std::vector<double> seconds)
      : plan_(plan),
        choices_(plan.choices),
        ops_(plan.step.ops),
        graph_(graph),
        seconds_(std::move(seconds)),
        turns_(turns_of(plan.choices)),
        places_(ops_.size() * static_cast<std::size_t>(shown_turns(turns_))) {
    room_ = plan.peak[Tier::device];
    for (const Buffer& buffer : plan.resident) room_ -= buffer.tier == Tier::device ? buffer.bytes * buffer.slots : 0;
    room_ = std::max<Bytes>(0, room_);
    place_compute();
    place_updates();
    place_moves();
    gather_placed();
  }

  Bytes room() const { return room_; }

  StepPart whole() const {
    StepPart part;
    for (int id = 0; id < count(); ++id) {
      if (!does_work(id)) continue;
      add(part, {.lane = op_of(id).lane, .repeats = repeats_with_micro_batches(op_of(id), plan_), .seconds = seconds_of(id)});
    }
    return part;
  }

  // From X to Y and from Y to X, for each pair of moments.
  std::vector<std::pair<StepPart, StepPart>> phases() const {
    std::vector<std::pair<StepPart, StepPart>> parts;
    for (const auto& [x, y] : moments()) {
      if (speculates(choices_)) {  // steps do not overlap: Y is the end of the step, where nothing is left to move
        parts.emplace_back(part({.others = {x, period_}, .compute = {x, period_}, .holds_after = false}),
                           part({.others = {0, x - 1}, .compute = {0, x}, .holds_before = false}));
        continue;
      }
      const int turn = y >= period_ ? period_ : 0;
      parts.emplace_back(part({.others = {x, y}, .compute = {x, y}}),
                         part({.others = {y + 1 - turn, x - 1 + period_ - turn}, .compute = {y - turn, x + period_ - turn}}));
    }
    return parts;
  }

 private:
  struct Place {
    int after = -1, before = -1;  // -1: not placed
  };
  struct Window {
    Place others, compute;
    bool holds_before = true, holds_after = true;
  };
  // What is placed, close together: it is looked at for each pair of moments.
  struct Placed {
    Place place;
    Lane lane = Lane::compute;
    bool is_update = false, repeats = false;
    double seconds = 0;
    Bytes bytes = 1;
  };

  // Operations of the first turn, of the middle ones, which are taken for one that takes as long as all of them, and of the last.
  int count() const { return static_cast<int>(places_.size()); }
  int turn(int id) const { return id / static_cast<int>(ops_.size()); }
  const Op& op_of(int id) const { return ops_[static_cast<std::size_t>(id) % ops_.size()]; }
  bool does_work(int id) const { return (op_of(id).when & turn_set(turn(id), shown_turns(turns_), true)) != 0; }
  int times(int id) const { return turns_ > 2 && turn(id) == 1 ? turns_ - 2 : 1; }
  double seconds_of(int id) const { return times(id) * seconds_[static_cast<std::size_t>(id) % ops_.size()]; }
  bool waits_for_norm() const { return choices_.update != UpdateTime::in_backward; }

  void place_compute() {
    for (int id = 0; id < count(); ++id) {
      if (op_of(id).lane == Lane::compute && does_work(id)) places_[id] = {compute_, compute_ + 1}, ++compute_;
    }
    period_ = compute_ + 1;
  }

  // The place at which a block's gradient is complete, and the first that takes its weights; -1: none.
  struct Uses {
    int complete = -1, used = -1;
  };
  std::vector<Uses> uses() const {
    std::vector<Uses> uses(graph_.blocks.size());
    for (int id = 0; id < count(); ++id) {
      if (op_of(id).lane != Lane::compute || op_of(id).unit < 0) continue;  // of a unit all do work in every turn
      const Unit& unit = graph_.units[op_of(id).unit];
      const bool looks_up = unit.looks_up;
      for (std::size_t i = 0; i < unit.blocks.size(); ++i) {
        // Of what it looks up a unit takes rows, which may have come by themselves, and its backward takes nothing.
        if (looks_up && i == 0 && op_of(id).kind == OpKind::backward) continue;
        int& used = uses[unit.blocks[i]].used;
        if (used < 0) used = places_[id].after;
      }
      if (op_of(id).kind != OpKind::backward) continue;
      for (const int block : unit.gradient_blocks) {
        uses[block].complete = places_[id].after;
      }
    }
    return uses;
  }

  void place_updates() {
    const std::vector<Uses> uses = this->uses();
    int first_used = compute_;
    for (int id = 0; id < count(); ++id) {
      if (op_of(id).block < 0 || !does_work(id)) continue;
      const auto [complete, used] = uses[op_of(id).block];
      if (op_of(id).kind == OpKind::gradient_finish && waits_for_norm() && complete >= 0) {
        places_[id] = {complete + 1, compute_};  // its squares are part of the norm
      } else if (op_of(id).kind == OpKind::update && waits_for_norm() && used >= 0) {
        places_[id] = {0, used};
        first_used = std::min(first_used, used);
      } else if (op_of(id).kind == OpKind::update && !waits_for_norm() && complete >= 0 && used >= 0) {
        places_[id] = {complete + 1, speculates(choices_) ? period_ : period_ + used};
      }
    }
    if (!waits_for_norm()) return;
    // Compute before all that takes what the norm has scaled may run before the norm.
    for (int id = 0; id < count(); ++id) {
      if (op_of(id).lane == Lane::compute && places_[id].after < first_used) places_[id] = {};
    }
  }

  // Reads lie by what they read for, writes by what made what they write.
  void place_moves() {
    const int resident = static_cast<int>(plan_.resident.size());
    std::vector<int> read_by(plan_.step.buffers.size(), -1), made_by(plan_.step.buffers.size(), -1);
    for (int id = 0; id < count(); ++id) {
      if (!does_work(id)) continue;
      const Op& op = op_of(id);
      for (const Operand& operand : op.operands) {
        if (operand.buffer < resident) continue;
        const auto buffer = static_cast<std::size_t>(operand.buffer - resident);
        if (plan_.step.buffers[buffer].tier != Tier::device) continue;
        if (op.lane == Lane::nvme_write) {
          if (const int maker = made_by[buffer]; maker >= 0 && !is_placed(id)) places_[id] = place_of_write(maker);
        } else if (op.lane == Lane::nvme_read) {
          read_by[buffer] = id;
        } else {
          if (const int read = read_by[buffer]; read >= 0 && !is_placed(read)) places_[read] = place_of_read(id);
          read_by[buffer] = -1;
          if (operand.access != Access::read) made_by[buffer] = id;
        }
      }
    }
  }
  bool is_placed(int id) const { return places_[id].after >= 0; }
  Place place_of_read(int reader) const {
    const Place place = places_[reader];
    return op_of(reader).lane == Lane::compute ? Place{place.after, place.after} : place;
  }
  Place place_of_write(int maker) const {
    const Place place = places_[maker];
    return op_of(maker).lane == Lane::compute ? Place{place.before, place.before} : place;
  }

  void gather_placed() {
    for (int id = 0; id < count(); ++id) {
      if (!is_placed(id)) continue;
      const Op& op = op_of(id);
      const bool moves = is_drive(op.lane);
      (moves ? moves_ : others_)
          .push_back({.place = places_[id],
                      .lane = op.lane,
                      .is_update = op.kind == OpKind::update,
                      .repeats = repeats_with_micro_batches(op, plan_),
                      .seconds = seconds_of(id),
                      .bytes = std::max<Bytes>(1, times(id) * op.bytes)});
    }
    const auto worth = [](const Placed& move) { return move.seconds / static_cast<double>(move.bytes); };
    std::ranges::sort(moves_, [&](const Placed& a, const Placed& b) { return worth(a) > worth(b); });
  }

  // The pairs of moments between which updates lie: the farthest from one another, and some of the others.
  std::vector<std::pair<int, int>> moments() const {
    std::vector<std::pair<int, int>> all;
    for (const Placed& other : others_) {
      if (other.is_update) all.emplace_back(other.place.after, other.place.before);
    }
    std::ranges::sort(all, [](const auto& a, const auto& b) {
      const int of_a = a.second - a.first, of_b = b.second - b.first;
      return of_a != of_b ? of_a > of_b : a < b;
    });
    all.erase(std::unique(all.begin(), all.end()), all.end());
    constexpr std::size_t most = 8;
    if (all.size() <= most) return all;
    std::vector<std::pair<int, int>> some;
    for (std::size_t i = 0; i < most; ++i) some.push_back(all[i * (all.size() - 1) / (most - 1)]);
    return some;
  }

  bool lies_in(const Place& place, const Place& window) const {
    return (place.after >= window.after && place.before <= window.before) ||
           (place.after + period_ >= window.after && place.before + period_ <= window.before);
  }

  StepPart part(const Window& window) const {
    StepPart part;
    for (const Placed& other : others_) {
      if (lies_in(other.place, other.lane == Lane::compute ? window.compute : window.others)) add(part, other);
    }
    Bytes before = window.holds_before ? room_ : 0, after = window.holds_after ? room_ : 0;
    for (const Placed& move : moves_) {
      if (!lies_in(move.place, window.others)) continue;
      add(part, move);
      Bytes& left = move.lane == Lane::nvme_read ? before : after;
      const Bytes held = std::min(left, move.bytes);
      left -= held;
      part.held_s[move.lane] += move.seconds * static_cast<double>(held) / static_cast<double>(move.bytes);
    }
    return part;
  }

  static void add(StepPart& part, const Placed& placed) {
    part.all_s[placed.lane] += placed.seconds;
    if (placed.repeats) part.repeated_s[placed.lane] += placed.seconds;
  }

  const Plan& plan_;
  const Choices& choices_;
  const std::vector<Op>& ops_;
  const UnitGraph& graph_;
  const std::vector<double> seconds_;
  const int turns_;
  std::vector<Place> places_;  // turn after turn
  int compute_ = 0, period_ = 0;
  Bytes room_ = 0;
  std::vector<Placed> moves_, others_;  // moves by what a byte that is held is worth
};

PerLane grown(const StepPart& part, double factor) {
  PerLane seconds;
  for (const Lane lane : kAll<Lane>) {
    seconds[lane] = std::max(0.0, part.all_s[lane] + (factor - 1) * part.repeated_s[lane] - part.held_s[lane]);
  }
  return seconds;
}

}  // namespace

StepBound::StepBound(const Plan& plan, const UnitGraph& graph, const MachineProfile& machine)
    : lanes_(machine), micro_batches_(plan.choices.micro_batches) {
  const Places places(plan, graph, seconds_alone(plan, graph, machine));
  held_bytes_ = places.room();
  step_ = places.whole();
  for (auto& [within, rest] : places.phases()) phases_.push_back({within, rest});
}

Bound StepBound::with_micro_batches(double count) const {
  const double factor = count / micro_batches_;
  Bound bound{.within = lanes_.of(grown(step_, factor))};
  bound.seconds = bound.within.seconds;
  for (const Phases& phases : phases_) {
    const PerLane within_s = grown(phases.within, factor);
    const LanesBound within = lanes_.of(within_s), rest = lanes_.of(grown(phases.rest, factor));
    constexpr double no_more = 1 + 1e-6;  // than the lanes say, which is said more simply
    if (within.seconds + rest.seconds <= no_more * bound.seconds) continue;
    bound = {.kind = BoundKind::phases,
             .seconds = within.seconds + rest.seconds,
             .within = within,
             .rest = rest,
             .compute_within_s = within_s[Lane::compute],
             .held_bytes = held_bytes_};
  }
  return bound;
}

}  // namespace spillway
