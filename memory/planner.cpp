#include "memory/planner.h"

#include <algorithm>
#include <functional>

#include "memory/error.h"
#include "memory/packing.h"
#include "memory/schedule.h"
#include "memory/waits.h"

namespace spillway {

const UnitGraph& graph_of(const GraphCandidates& graphs, const Choices& choices) { return choices.graph == 0 ? *graphs.tiled : *graphs.fused; }

namespace {

// What is moved onto the device before the other where there is not room for both. The optimizer state of tied embeddings, whose
// gradient is complete last and whose weights are wanted first, stands in the way of the next step as long as it is on NVMe.
enum class Fill : std::uint8_t { saved_first, optimizer_first };

// A point of the search but for what rests where; `fill` then moves as much as fits onto the device.
struct Shape {
  int graph;
  Order order;
  UpdateTime update;
  Saved spare;     // what happens to saved values that do not stay
  Boundary spare_boundary;
  int lookahead, update_spread;
  std::int64_t update_chunk;
  int slots;
  Fill fill;
  bool first_of_its_kind;  // differs from the one before in more than the spare activations
};

constexpr int kTrialMicroBatches = 4;

class Search {
 public:
  Search(const GraphCandidates& graphs, const MachineProfile& machine, const PlanRequest& request)
      : graphs_(graphs), machine_(machine), request_(request) {}

  PlanOutcome run() {
    if (const std::string refusal = refuse(); !refusal.empty()) {
      outcome_.refusal = refusal;
      return std::move(outcome_);
    }
    // Where everything rests on the device there is nothing to weigh but the time of the update.
    for (const Shape& shape : shapes()) {
      if (shape.first_of_its_kind) consider(shape, true);
    }
    if (!best_ && request_.micro_batches > kTrialMicroBatches) {
      for (const Shape& shape : best_with_fewer_micro_batches()) consider(shape, false);
    }
    if (!best_) {
      for (const Shape& shape : shapes()) consider(shape, false);
      refine();
    }
    if (best_) {
      outcome_.prediction = simulate(*best_, graph_of(graphs_, best_->choices), machine_);
      outcome_.plan = std::move(best_);
    }
    return std::move(outcome_);
  }

 private:
  bool forced_off_device() const {
    return request_.parameter_tier == Tier::nvme || request_.optimizer_tier == Tier::nvme || request_.activations == SavedRequest::nvme;
  }

  std::string refuse() const {
    const bool disk = request_.budgets.nvme > 0;
    if (!disk && forced_off_device()) return "a tier is forced to nvme, but there is no --nvme directory with room for a block";
    if (request_.update == UpdateTime::in_backward && request_.clip) {
      if (request_.parameter_tier == Tier::device || request_.optimizer_tier == Tier::device || !disk || request_.durability == Durability::checkpoint) {
        return "--update in-backward with --clip-grad runs the update before the norm is known and must be able to take it back: all "
               "parameters and optimizer states must rest on NVMe with two slots (--parameter-tier nvme --optimizer-tier nvme "
               "--durability step), or clipping be off (--clip-grad 0)";
      }
    }
    return {};
  }

  std::vector<Shape> shapes() const {
    std::vector<Shape> shapes;
    std::vector<Order> orders = {Order::vertical};
    if (request_.order) {
      orders = {*request_.order};
    } else if (request_.micro_batches > 1) {
      orders = {Order::vertical, Order::horizontal};
    }
    std::vector<UpdateTime> updates;
    if (request_.update) {
      updates = {*request_.update};
    } else {
      updates = {UpdateTime::after};
      if (!request_.clip) updates.push_back(UpdateTime::in_backward);
      updates.push_back(UpdateTime::in_next_forward);
    }
    struct Spare {
      Saved saved;
      Boundary boundary;
    };
    std::vector<Spare> spares;
    const bool nvme = request_.budgets.nvme > 0;
    switch (request_.activations) {
      case SavedRequest::device: spares = {{Saved::keep, Boundary::keep}}; break;
      case SavedRequest::recompute: spares = {{Saved::recompute, Boundary::keep}}; break;
      case SavedRequest::nvme: spares = {{Saved::spill, Boundary::spill}}; break;
      case SavedRequest::automatic:
        spares = {{Saved::recompute, Boundary::keep}};
        if (nvme) spares = {{Saved::recompute, Boundary::keep}, {Saved::spill, Boundary::keep}, {Saved::recompute, Boundary::spill}, {Saved::spill, Boundary::spill}};
        break;
    }
    for (const int graph : {1, 0}) {
      for (const Order order : orders) {
        for (const UpdateTime update : updates) {
          for (const Spare& spare : spares) {
            shapes.push_back({graph, order, update, spare.saved, spare.boundary, request_.lookahead.value_or(1), 1, chunk(), slots(), Fill::saved_first, &spare == spares.data()});
          }
        }
      }
    }
    return shapes;
  }

  // So that the chunks in flight take an eighth of the device: larger ones would crowd out what the backward needs, smaller ones
  // only make more operations.
  std::int64_t chunk() const {
    constexpr Bytes in_flight = 5, bytes_per_element = 12;
    std::int64_t elements = 64 << 10;
    while (elements < (16 << 20) && 2 * elements * in_flight * bytes_per_element <= request_.budgets.device / 8) elements *= 2;
    return elements;
  }

  int slots() const {
    if (request_.durability == Durability::checkpoint) return 1;
    if (request_.durability == Durability::step) return 2;
    // Two where the directories have room for all state twice and for what is spilled beside it.
    Bytes state = 0;
    for (const ParameterBlock& block : graphs_.tiled->blocks) {
      for (int kind = 0; kind < kStateKinds; ++kind) state += bytes_per_element(request_.form, static_cast<StateKind>(kind)) * block.elements;
      state += gradient_bytes_per_element(request_.form) * block.elements / 2;
    }
    return 2 * state <= request_.budgets.nvme ? 2 : 1;
  }

  Choices start(const Shape& shape) const {
    const UnitGraph& graph = shape.graph == 0 ? *graphs_.tiled : *graphs_.fused;
    const bool disk = request_.budgets.nvme > 0;
    const Tier spare = disk ? Tier::nvme : Tier::device;
    Choices choices;
    choices.graph = shape.graph;
    choices.order = shape.order;
    choices.update = shape.update;
    choices.micro_batches = request_.micro_batches;
    choices.clip = request_.clip;
    choices.form = request_.form;
    choices.slots = shape.slots;
    choices.lookahead = shape.lookahead;
    choices.update_spread = shape.update_spread;
    choices.update_chunk = shape.update_chunk;
    choices.weight_tier.assign(graph.blocks.size(), request_.parameter_tier.value_or(spare));
    choices.optimizer_tier.assign(graph.blocks.size(), request_.optimizer_tier.value_or(spare));
    choices.gradient_tier.assign(graph.blocks.size(), spare);
    choices.saved.assign(graph.units.size(), shape.spare);
    choices.boundary.assign(graph.units.size(), shape.spare_boundary);
    return choices;
  }

  Plan build(const Choices& choices) {
    ++outcome_.plans_built;
    Plan plan = build_schedule(graph_of(graphs_, choices), choices);
    if (request_.evaluates) plan.evaluate = build_evaluation(*graphs_.tiled, plan);
    pack(plan);
    return plan;
  }

  bool fits(const Plan& plan) {
    const Bytes device = plan.peak[static_cast<int>(Tier::device)], nvme = plan.peak[static_cast<int>(Tier::nvme)];
    const bool device_fits = device <= request_.budgets.device, nvme_fits = nvme <= request_.budgets.nvme;
    if (device_fits && nvme_fits) return true;
    // Remember the plan that lacks least.
    const Bytes lacks = std::max<Bytes>(0, device - request_.budgets.device) + std::max<Bytes>(0, nvme - request_.budgets.nvme);
    if (least_lack_ < 0 || lacks < least_lack_) {
      least_lack_ = lacks;
      outcome_.short_tier = device_fits ? Tier::nvme : Tier::device;
      outcome_.needed = device_fits ? nvme : device;
      outcome_.budget = device_fits ? request_.budgets.nvme : request_.budgets.device;
    }
    return false;
  }

  // Sets apply(choices, k) for the largest k in [0, most] that still fits. Memory grows with k.
  void raise(Choices& choices, int most, const std::function<void(Choices&, int)>& apply) {
    const auto fits_with = [&](int k) {
      Choices trial = choices;
      apply(trial, k);
      return fits(build(trial));
    };
    int low = 0, high = most;  // low fits
    if (most > 0 && fits_with(most)) low = most;
    while (low < most && low + 1 < high) {
      const int middle = (low + high) / 2;
      (fits_with(middle) ? low : high) = middle;
    }
    apply(choices, low);
  }

  void consider(const Shape& shape, bool in_core) {
    Choices choices = start(shape);
    const UnitGraph& graph = graph_of(graphs_, choices);
    const bool speculates = choices.update == UpdateTime::in_backward && request_.clip;
    const int blocks = static_cast<int>(graph.blocks.size()), units = static_cast<int>(graph.units.size());
    const auto keep_weights = [&](Choices& c, int k) { std::fill_n(c.weight_tier.begin(), k, Tier::device); };
    const auto keep_gradients = [&](Choices& c, int k) { std::fill_n(c.gradient_tier.begin(), k, Tier::device); };
    const auto keep_optimizer = [&](Choices& c, int k) { std::fill_n(c.optimizer_tier.begin(), k, Tier::device); };
    const auto keep_boundary = [&](Choices& c, int k) { std::fill_n(c.boundary.begin(), k, Boundary::keep); };
    // The last units' values are wanted first in the backward and would rest for the shortest time: they stay first.
    const auto keep_saved = [&](Choices& c, int k) { std::fill_n(c.saved.rbegin(), k, Saved::keep); };
    const bool may_keep = request_.activations == SavedRequest::automatic || request_.activations == SavedRequest::device;
    if (in_core) {
      if (speculates || forced_off_device()) return;
      keep_weights(choices, blocks), keep_gradients(choices, blocks), keep_optimizer(choices, blocks);
      if (may_keep) keep_boundary(choices, units), keep_saved(choices, units);
      Plan plan = build(choices);
      if (fits(plan)) compare(shape, std::move(plan));
      return;
    }
    if (!fits(build(choices))) return;
    if (may_keep) raise(choices, units, keep_boundary);
    if (!request_.parameter_tier && !speculates) raise(choices, blocks, keep_weights);
    raise(choices, blocks, keep_gradients);
    const auto fill_optimizer = [&] {
      if (!request_.optimizer_tier && !speculates) raise(choices, blocks, keep_optimizer);
    };
    if (shape.fill == Fill::optimizer_first) fill_optimizer();
    if (may_keep) raise(choices, units, keep_saved);
    if (shape.fill == Fill::saved_first) fill_optimizer();
    compare(shape, build(choices));
  }

  void compare(const Shape& shape, Plan plan) {
    derive_waits(plan);
    double seconds = simulate(plan, graph_of(graphs_, plan.choices), machine_).step_s;
    if (plan.choices.update == UpdateTime::in_backward && request_.clip) seconds *= 1 + request_.expected_clip_rate;
    ranking_.emplace_back(seconds, shape);
    if (best_ && seconds >= best_seconds_) return;
    best_ = std::move(plan);
    best_seconds_ = seconds;
  }

  // What is good for a few micro-batches is good for many, and a plan grows with their number: updates and read-ahead are weighed
  // with few. Order and activations depend on how many there are: the best shape of each such choice is tried with all.
  std::vector<Shape> best_with_fewer_micro_batches() {
    PlanRequest request = request_;
    request.micro_batches = kTrialMicroBatches;
    Search trial(graphs_, machine_, request);
    trial.run();
    outcome_.plans_built += trial.outcome_.plans_built;
    std::stable_sort(trial.ranking_.begin(), trial.ranking_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Shape> shapes;
    for (const auto& [seconds, shape] : trial.ranking_) {
      const bool another = std::none_of(shapes.begin(), shapes.end(), [&, &candidate = shape](const Shape& chosen) {
        return chosen.order == candidate.order && chosen.spare == candidate.spare && chosen.spare_boundary == candidate.spare_boundary;
      });
      if (another) shapes.push_back(shape);
    }
    return shapes;
  }

  // How far ahead to read and in what pieces to update matters less than the shape: it is weighed for the best shapes alone.
  void refine() {
    if (request_.lookahead) return;
    if (!best_) {
      for (Shape shape : shapes()) {
        shape.lookahead = shape.update_spread = 0;
        shape.update_chunk = std::min<std::int64_t>(shape.update_chunk, 64 << 10);
        consider(shape, false);
      }
    }
    std::stable_sort(ranking_.begin(), ranking_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    constexpr std::size_t kRefined = 2;
    const std::vector best_shapes(ranking_.begin(), ranking_.begin() + static_cast<std::ptrdiff_t>(std::min(ranking_.size(), kRefined)));
    for (const auto& [seconds, found] : best_shapes) {
      for (const int lookahead : {0, 1, 2, 4}) {
        for (const int spread : {0, 2}) {
          for (const Fill fill : {Fill::saved_first, Fill::optimizer_first}) {
            Shape shape = found;
            shape.lookahead = lookahead;
            shape.update_spread = spread;
            shape.fill = fill;
            consider(shape, false);
          }
        }
      }
    }
  }

  const GraphCandidates& graphs_;
  const MachineProfile& machine_;
  const PlanRequest& request_;
  PlanOutcome outcome_;
  std::optional<Plan> best_;
  double best_seconds_ = 0;
  std::vector<std::pair<double, Shape>> ranking_;  // seconds of the shapes that fit
  Bytes least_lack_ = -1;
};

}  // namespace

PlanOutcome make_plan(const GraphCandidates& graphs, const MachineProfile& machine, const PlanRequest& request) {
  return Search(graphs, machine, request).run();
}

}  // namespace spillway
