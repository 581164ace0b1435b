#include "memory/search/planner.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include "memory/base/error.h"
#include "memory/search/filling.h"
#include "memory/search/outlines.h"

namespace spillway {

namespace {

// The details of at most kRefined outlines are weighed, and of none that takes more than kHopeless times as long as the fastest.
// kHopelessGroup: see is_hopeless(). A descent through the details ends with a round that gains less than kWorthARound: the model
// of a machine is right within some percent. A plan is good enough when it takes at most kGoodEnough times the least compute.
constexpr std::size_t kRefined = 8;
constexpr double kHopeless = 1.15, kHopelessGroup = 2, kWorthARound = 1.015, kGoodEnough = 1.01;
// A search is over when it has spent so much, counted in operations built. Weighing a plan costs kWeighing times as much as
// building it.
constexpr std::size_t kSpent = 1'400'000, kSpentOnSample = 700'000;
constexpr std::size_t kWeighing = 3;
constexpr int kLessAhead = 3;    // most times that an outline that does not fit is tried with less read ahead
constexpr double kBelied = 1.3;  // a whole so much slower than samples predict: up to kTriedInstead more outlines are tried
constexpr int kTriedInstead = 6;
constexpr int kTightestTried = 2;  // where nothing fits: tight outlines that may fail before the search gives up

struct Ranked {
  double seconds;
  Outline outline;
  Filled filled;
};

class Search {
 public:
  // `whole`: the model that the graphs are a sample of; null where they are no sample.
  Search(const GraphCandidates& graphs, const MachineProfile& machine, const PlanRequest& request, const PairRunner& run_pair,
         const UnitGraph* whole = nullptr)
      : graphs_(graphs),
        machine_(machine),
        request_(request),
        run_pair_(run_pair),
        is_sample_(whole != nullptr),
        outlines_(graphs_, machine, request_),
        filling_(graphs_, request_, whole),
        least_compute_s_(least_compute_s()) {}

  PlanOutcome run() {
    PlanOutcome outcome;
    if (outcome.refusal = outlines_.refusal(); !outcome.refusal.empty()) return outcome;
    if (request_.like) consider_like(*request_.like);
    if (request_.goal != Goal::any && !(best_ && request_.effort <= 0)) search();
    if (!best_) consider_tightest();
    outcome.plans_built = filling_.plans_built() + trial_plans_built_;
    if (best_) {
      const Plan& plan = filling_.plan_of(best_->choices);
      const UnitGraph& graph = graph_of(graphs_, best_->choices);
      if (request_.goal == Goal::time) {
        outcome.prediction.step_s = best_->step_s;
        outcome.prediction.bound = StepBound(plan, graph, machine_);
      } else {
        outcome.prediction = predict(plan, graph, machine_);
        outcome.plan = filling_.take_plan_of(best_->choices);
      }
      outcome.outline = best_->outline, outcome.filled = best_->filled;
    } else if (const auto& lack = filling_.least_lack()) {
      outcome.short_tier = lack->tier;
      outcome.needed = lack->needed;
      outcome.budget = lack->budget;
    }
    return outcome;
  }

 private:
  void search() {
    if (consider_in_core()) return;
    if (!is_thin()) return consider_all();
    consider_best_of_trial(Pace::ahead);
    if (!best_ || !has_room_) consider_best_of_trial(Pace::tight);
  }

  // --- weighing ---

  // Weighs the filled outline. Where it does not fit and spills logits to a tier below, tries it without that, then with less
  // read ahead. True where any of these fits.
  bool consider(Outline outline, const Filled* alike = nullptr) {
    bool fits = weigh(outline, filling_.fill(outline, alike)).has_value();
    has_room_ |= fits;
    if (!fits && outline.spare_pieces == Saved::spill && request_.activations == SavedRequest::automatic) {
      outline.spare_pieces = Saved::recompute;
      fits = weigh(outline, filling_.fill(outline)).has_value();
    }
    return fits || consider_reading_less(outline);
  }

  // Weighs an outline that has just been found not to fit, with less read ahead. True where that fits.
  bool consider_reading_less(Outline outline) {
    for (int times = 0; times < kLessAhead && !request_.ahead; ++times) {
      outline.ahead = std::min(nearer(outline.ahead), ahead_without(outline.ahead, filling_.lacked()));
      if (outline.ahead <= 0) break;
      if (weigh(outline, filling_.fill(outline))) return true;
    }
    return false;
  }

  // Seconds of the choices' plan; nothing where there are no choices. Keeps the fastest.
  std::optional<double> weigh(const Outline& outline, const std::optional<Choices>& choices) {
    const std::optional<double> seconds = choices ? std::optional(weigh(outline, *choices)) : std::nullopt;
    spent_on_last_ = spent() - std::exchange(spent_until_last_, spent());
    return seconds;
  }

  double weigh(const Outline& outline, const Choices& choices) {
    // Outlines that differ in how they treat what does not rest on the device have the same choices where all of it rests there.
    const auto same = std::ranges::find(weighed_choices_, choices, &std::pair<Choices, double>::first);
    if (same != weighed_choices_.end()) return same->second;
    const Plan& plan = filling_.plan_of(choices);
    weighed_ += plan.step.ops.size();
    const double step_s = seconds_of_step(plan, graph_of(graphs_, choices), machine_);
    const double seconds = speculates(choices) ? step_s * (1 + request_.expected_clip_rate) : step_s;
    ranking_.push_back({seconds, outline, filling_.filled()});
    weighed_choices_.emplace_back(choices, seconds);
    if (seconds < best_seconds_) {
      best_ = Best{outline, filling_.filled(), choices, step_s};
      best_seconds_ = seconds;
    }
    return seconds;
  }

  void consider_like(const Like& like) {
    const Outline outline = outlines_.as_asked(like.outline);
    if (!weigh(outline, filling_.as_in(outline, like))) weigh(outline, filling_.fill(outline, &like.filled));
  }

  // True when everything rests on the device in some plan; then there is nothing to weigh but the time of the update.
  bool consider_in_core() {
    bool fits = false;
    if (outlines_.forced_off_device()) return fits;
    for (const Outline& outline : outlines_.all()) {
      // Nor is there anything to fill or to fetch: outlines that differ in these have one plan.
      if (outline.spare == outlines_.first_spare().saved && outline.spare_boundary == outlines_.first_spare().boundary &&
          outline.fill == Fill::saved_first && outline.update_tier == Tier::device)
        fits |= weigh(outline, filling_.in_core(outline)).has_value();
    }
    return fits;
  }

  void consider_all() {
    consider_all(outlines_.all());
    if (best_ && !has_room_) consider_tightest();
    refine();
  }

  void consider_all(const std::vector<Outline>& outlines) {
    for (const Outline& outline : outlines) {
      if (!is_good_enough() && !is_hopeless(outline)) consider(outline);
    }
  }

  // True where all weighed outlines with this one's group size take more than kHopelessGroup times as long as the fastest: when
  // the updates come then makes no difference.
  bool is_hopeless(const Outline& outline) const {
    const auto is_of_group = [&](const Ranked& ranked) { return ranked.outline.group == outline.group; };
    const auto is_near = [&](const Ranked& ranked) { return ranked.seconds <= kHopelessGroup * best_seconds_; };
    return std::ranges::any_of(ranking_, is_of_group) &&
           std::ranges::none_of(ranking_, [&](const Ranked& ranked) { return is_of_group(ranked) && is_near(ranked); });
  }

  bool is_good_enough() const { return best_seconds_ <= kGoodEnough * least_compute_s_; }

  // The least seconds that any plan takes: each pass once.
  double least_compute_s() const {
    double least_s = std::numeric_limits<double>::infinity();
    for (const UnitGraph* graph : {graphs_.tiled, graphs_.fused}) {
      double seconds = 0;
      for (const Unit& unit : graph->units) {
        if (unit.role == ForwardRole::computes) seconds += seconds_of(machine_, *graph, unit.forward_work);
        seconds += seconds_of(machine_, *graph, unit.backward_work);
      }
      least_s = std::min(least_s, seconds * request_.micro_batches);
    }
    return least_s;
  }

  // The best of each kind, fastest first.
  static std::vector<Ranked> best_of_each_kind(std::vector<Ranked> sorted) {
    std::vector<Ranked> best;
    std::stable_sort(sorted.begin(), sorted.end(), [](const Ranked& a, const Ranked& b) { return a.seconds < b.seconds; });
    for (const Ranked& ranked : sorted) {
      if (std::none_of(best.begin(), best.end(), [&](const Ranked& other) { return other.outline.same_kind(ranked.outline); }))
        best.push_back(ranked);
    }
    return best;
  }

  // Weighs details for the best outlines alone, one detail after the other: how far ahead to read, what to fill the device with
  // and in what pieces to update matter less than the rest. Two searches share the outlines alternately and run at the same time;
  // each may spend what is left.
  void refine() {
    if (request_.ahead || is_spent()) return;
    std::vector<Ranked> found = best_of_each_kind(ranking_);
    if (is_sample_) return refine(best_of_each_order(found));
    found.resize(std::min(found.size(), kRefined));
    std::erase_if(found, [&](const Ranked& ranked) { return ranked.seconds > kHopeless * best_seconds_; });
    filling_.drop_plan();  // one plan less in memory while these build theirs
    const PairRunner by_itself = one_after_the_other;
    std::array<Search, 2> halves{Search(graphs_, machine_, request_, by_itself), Search(graphs_, machine_, request_, by_itself)};
    for (Search& half : halves) half.begin_after(*this);
    const auto refine_half = [&](std::size_t half) {
      std::vector<Ranked> mine;
      for (std::size_t i = half; i < found.size(); i += 2) mine.push_back(found[i]);
      halves[half].refine(mine);
    };
    run_pair_([&] { refine_half(0); }, [&] { refine_half(1); });
    for (Search& half : halves) {
      trial_plans_built_ += half.filling_.plans_built();
      if (!half.best_ || half.best_seconds_ >= best_seconds_) continue;
      best_ = std::move(half.best_);
      best_seconds_ = half.best_seconds_;
    }
  }

  void refine(const std::vector<Ranked>& found) {
    for (Ranked ranked : found) {
      for (double before = std::numeric_limits<double>::infinity(); before > kWorthARound * ranked.seconds;) {
        before = ranked.seconds;
        vary_details(ranked);
      }
    }
  }

  // The fastest outline of each order of units and updates. A sample predicts less well which order is best for the whole than
  // which other choices go with each order.
  static std::vector<Ranked> best_of_each_order(const std::vector<Ranked>& sorted) {
    std::vector<Ranked> best;
    for (const Ranked& ranked : sorted) {
      if (std::ranges::none_of(best, [&](const Ranked& other) { return other.outline.ordered_alike(ranked.outline); }))
        best.push_back(ranked);
    }
    return best;
  }

  // Takes over the best time that `other` has found, which is to be beaten, and the cost that it has spent.
  void begin_after(const Search& other) {
    best_seconds_ = other.best_seconds_;
    spent_before_ = other.spent();
    spent_until_last_ = other.spent_until_last_, spent_on_last_ = other.spent_on_last_;
  }

  // Weighs the outline with one detail changed, then the next; a change that gains stays.
  void vary_details(Ranked& ranked) {
    Outline& outline = ranked.outline;
    const auto is_better = [&](auto member, const auto& value) {
      if (value == outline.*member || is_good_enough() || is_spent()) return false;
      Outline trial = outline;
      trial.*member = value;
      const std::optional<double> seconds = weigh(trial, filling_.fill(trial, &ranked.filled));
      if (!seconds || *seconds >= ranked.seconds) return false;
      ranked.seconds = *seconds, outline = trial;
      return true;
    };
    is_better(&Outline::fill, outline.fill == Fill::saved_first ? Fill::state_first : Fill::saved_first);
    const Bytes farthest = outlines_.farthest_ahead(), ahead = outline.ahead;
    while (2 * outline.ahead <= farthest && is_better(&Outline::ahead, 2 * outline.ahead)) {
    }
    while (outline.ahead <= ahead && is_better(&Outline::ahead, outline.ahead / 2)) {
    }
    if (farther(outline.ahead) > farthest || !is_better(&Outline::ahead, farther(outline.ahead)))
      is_better(&Outline::ahead, nearer(outline.ahead));
    if (!is_better(&Outline::update_chunk, 2 * outline.update_chunk))
      is_better(&Outline::update_chunk, std::max(outline.update_chunk / 2, kBlockElements));
    if (outlines_.may_defer(outline.update)) {
      while (outline.deferred < Outline::kDeferredWhole && is_better(&Outline::deferred, outline.deferred + 1)) {
      }
      while (outline.deferred > 0 && is_better(&Outline::deferred, outline.deferred - 1)) {
      }
    }
    if (outline.graph == 0 && outlines_.has_below() && request_.activations == SavedRequest::automatic)
      is_better(&Outline::spare_pieces, outline.spare_pieces == Saved::spill ? Saved::recompute : Saved::spill);
  }

  static Bytes farther(Bytes ahead) { return ahead + ahead / 4; }
  static Bytes nearer(Bytes ahead) { return ahead - ahead / 4; }

  // The cost of the search so far, in operations.
  std::size_t spent() const { return spent_before_ + filling_.operations_built() + kWeighing * weighed_; }
  double most_spent() const { return request_.effort * static_cast<double>(is_sample_ ? kSpentOnSample : kSpent); }
  // True when less is left than half the cost of the outline considered last.
  bool is_spent() const { return static_cast<double>(spent() + spent_on_last_ / 2) > most_spent(); }

  // --- large models ---

  bool is_thin() const { return graphs_.thin_tiled != nullptr; }

  // Outlines are weighed on few layers, with proportionally less of the device, and the best are tried on all layers: a plan
  // grows with its layers, and an outline that is good for few is good for many. One outline of each way to compute and to keep
  // activations is tried first, then one of each order of units and updates, then the others: an embedding, which is a larger
  // part of few layers, makes one look worse than another. That may take half of what the search may spend. Where the best is far
  // slower than the sample predicts of others, the whole had no room for what its sample had room for, and some more are tried.
  void consider_best_of_trial(Pace pace) {
    Weighed weighed, others;  // the two ways through the vocabulary
    run_pair_([&] { weighed = weigh_sample(1, pace); }, [&] { others = weigh_sample(0, pace); });
    weighed.ranking.insert(weighed.ranking.end(), others.ranking.begin(), others.ranking.end());
    trial_plans_built_ += weighed.plans_built + others.plans_built;
    const double growth = least_compute_s_ / weighed.least_compute_s;
    const std::vector<Ranked> found = best_of_each_kind(std::move(weighed.ranking));
    std::vector<Outline> tried;
    int more = kTriedInstead;
    for (const auto is_like : {&Outline::computes_alike, &Outline::ordered_alike, &Outline::same_kind}) {
      for (const auto& [seconds, outline, filled] : found) {
        const auto alike = [&, &candidate = outline](const Outline& other) { return (other.*is_like)(candidate); };
        if (std::ranges::any_of(tried, alike)) continue;
        const bool is_belied = best_seconds_ > kBelied * growth * seconds;
        const bool is_dear = static_cast<double>(spent() + spent_on_last_) > most_spent() / 2;
        if (best_ && (is_good_enough() || (is_dear && !(is_belied && more-- > 0)))) continue;
        if (consider(outline, &filled)) tried.push_back(outline);
      }
    }
    has_room_ &= weighed.has_room || others.has_room;
    refine();
  }

  struct Weighed {
    std::vector<Ranked> ranking;
    int plans_built = 0;
    bool has_room = false;
    double least_compute_s = 0;
  };
  Weighed weigh_sample(int graph, Pace pace) const {
    const GraphCandidates graphs = trial_graphs();
    std::vector<Outline> outlines = outlines_.all(pace);
    std::erase_if(outlines, [&](const Outline& outline) { return outline.graph != graph; });
    const PairRunner by_itself = one_after_the_other;  // two of these run at once
    Search trial(graphs, machine_, trial_request(), by_itself, graphs_.tiled);
    trial.consider_all(outlines);
    trial.refine();
    return {std::move(trial.ranking_), trial.filling_.plans_built(), trial.has_room_, trial.least_compute_s_};
  }
  GraphCandidates trial_graphs() const { return is_thin() ? GraphCandidates{graphs_.thin_tiled, graphs_.thin_fused} : graphs_; }

  PlanRequest trial_request() const {
    PlanRequest request = request_;
    request.evaluates = false;
    request.like.reset();
    return request;
  }
  // --- what hardly fits ---
  void consider_tightest() {
    if (request_.ahead) return;
    int failed = 0;
    for (const Outline& outline : by_least_device()) {
      if (!consider(outline) && ++failed == kTightestTried) break;
      if (best_ && (request_.goal == Goal::any || is_spent())) break;
    }
  }

  // Tight outlines, sorted by the device bytes that they need when nothing rests there. A model of many layers is measured on
  // few: values that are kept for the backward only grow with the layers, and never make an outline need the least.
  std::vector<Outline> by_least_device() {
    const GraphCandidates graphs = trial_graphs();
    const PlanRequest request = trial_request();
    Filling filling(graphs, request, graphs_.tiled);
    std::vector<std::pair<Bytes, Outline>> needs;
    for (const Outline& outline : outlines_.all(Pace::tight)) {
      Outline coarse = outline;  // the size of the pieces hardly matters for the order, and small ones are many
      coarse.update_chunk = std::max(outlines_.chunk(outline.update_tier), outline.update_chunk);
      needs.emplace_back(filling.least_device(coarse), outline);
    }
    trial_plans_built_ += filling.plans_built();
    std::stable_sort(needs.begin(), needs.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Outline> sorted;
    for (const auto& [bytes, outline] : needs) sorted.push_back(outline);
    return sorted;
  }

  const GraphCandidates graphs_;
  const MachineProfile& machine_;
  const PlanRequest request_;
  const PairRunner& run_pair_;
  const bool is_sample_;
  const Outlines outlines_;
  Filling filling_;
  const double least_compute_s_;
  int trial_plans_built_ = 0;
  struct Best {
    Outline outline;
    Filled filled;
    Choices choices;
    double step_s;
  };
  std::optional<Best> best_;  // its plan is built again where others were built since: two large ones are not kept in memory
  double best_seconds_ = std::numeric_limits<double>::infinity();
  bool has_room_ = false;  // some outline fits with as much read ahead as it asks for
  std::size_t spent_before_ = 0;
  std::size_t spent_until_last_ = 0, spent_on_last_ = 0;     // cost up to and of the outline considered last, in operations
  std::size_t weighed_ = 0;                                  // operations of all plans that were weighed
  std::vector<Ranked> ranking_;                              // outlines that fitted
  std::vector<std::pair<Choices, double>> weighed_choices_;  // the choices weighed, and the seconds of their plans
};

}  // namespace

namespace {

PlanOutcome plan_of_stage(const GraphCandidates& graphs, const MachineProfile& machine, const PlanRequest& request,
                          const PairRunner& run_pair) {
  PlanOutcome outcome = Search(graphs, machine, request, run_pair).run();
  const bool fits = outcome.prediction.step_s > 0;
  if (fits || request.durability != Durability::automatic || Outlines(graphs, machine, request).slots() == 1) return outcome;
  // Two slots were an estimate: it knows nothing of sums that outlast a turn, so there may be no room for all state twice.
  PlanRequest once = request;
  once.durability = Durability::checkpoint;
  PlanOutcome smaller = Search(graphs, machine, once, run_pair).run();
  smaller.plans_built += outcome.plans_built;
  return smaller.refusal.empty() ? std::move(smaller) : std::move(outcome);
}

}  // namespace

namespace {

// Takes the fastest stage that fits. If none fits, it takes the stage that shards most, as that needs least. Stages 1 and 2 are
// one plan.
PlanOutcome plan_of_form(const GraphCandidates& graphs, const MachineProfile& machine, const PlanRequest& request,
                         const PairRunner& run_pair) {
  if (!request.any_stage || request.sharding.group == 1) return plan_of_stage(graphs, machine, request, run_pair);
  const Plan* const like = request.like ? request.like->plan : nullptr;
  std::optional<PlanOutcome> best;
  int plans_built = 0;
  for (const int stage : {3, 2, 0}) {
    PlanRequest of_stage = request;
    of_stage.sharding.stage = stage;
    if (like != nullptr && like->choices.sharding.stage != stage) {
      if (request.effort <= 0) continue;  // looks no farther than `like`
      of_stage.like.reset();
    }
    PlanOutcome outcome = plan_of_stage(graphs, machine, of_stage, run_pair);
    plans_built += outcome.plans_built;
    const double seconds = outcome.prediction.step_s;
    if (!best || (seconds > 0 && (best->prediction.step_s == 0 || seconds < best->prediction.step_s))) best = std::move(outcome);
    if (request.goal == Goal::any && best->prediction.step_s > 0) break;
  }
  best->plans_built = plans_built;
  return *std::move(best);
}

}  // namespace

// Groups of experts are units of their own only where a layer's mixture does not fit as one: then the sums of all micro-batches
// pass through more units.
PlanOutcome make_plan(const GraphCandidates& graphs, const MachineProfile& machine, const PlanRequest& request,
                      const PairRunner& run_pair) {
  const auto of_form = [&](const GraphCandidates& form, bool in_groups) {
    PlanRequest with = request;
    if (with.like && with.like->plan != nullptr && with.like->plan->choices.experts_in_groups != in_groups) with.like.reset();
    PlanOutcome outcome = plan_of_form(form, machine, with, run_pair);
    if (outcome.plan) outcome.plan->choices.experts_in_groups = in_groups;
    return outcome;
  };
  PlanOutcome whole = of_form(graphs, false);
  if (graphs.in_groups == nullptr || whole.prediction.step_s > 0 || !whole.refusal.empty()) return whole;
  PlanOutcome grouped = of_form(*graphs.in_groups, true);
  grouped.plans_built += whole.plans_built;
  return grouped;
}

}  // namespace spillway
