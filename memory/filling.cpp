#include "memory/filling.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "memory/packing.h"
#include "memory/schedule.h"

namespace spillway {
namespace {

// A unit's values that live from its forward to its backward, in one micro-batch.
struct UnitValues {
  Bytes saved = 0, boundary = 0;
};
UnitValues values_of(const UnitGraph& graph, const Unit& unit) {
  UnitValues bytes;
  for (const ValueUse& use : unit.forward) {
    if (use.access == Access::read) continue;
    (unit.saves(use.value) ? bytes.saved : bytes.boundary) += graph.values[use.value].bytes;
  }
  return bytes;
}

// Plans, and operations of them, that are built at most to find what rests on the device; and the share of the device that is not
// worth another.
constexpr int kPlansOfAFilling = 8;
constexpr std::size_t kOperationsOfAFilling = 1'000'000;
constexpr Bytes kRoomNotWorthAPlan = 200;

}  // namespace

Choices Filling::start(const Outline& outline) const {
  Choices choices;
  choices.graph = outline.graph;
  const UnitGraph& graph = graph_of(graphs_, choices);
  const Tier spare = request_.budgets.nvme > 0 ? Tier::nvme : Tier::device;
  choices.order = outline.order;
  choices.update = outline.update;
  choices.micro_batches = request_.micro_batches;
  choices.clip = request_.clip;
  choices.form = request_.form;
  choices.sharding = request_.sharding;
  choices.slots = outline.slots;
  choices.lookahead = outline.lookahead;
  choices.update_spread = outline.update_spread;
  choices.update_chunk = outline.update_chunk;
  choices.gives_logits = request_.gives_logits;
  choices.weight_tier.assign(graph.blocks.size(), request_.parameter_tier.value_or(spare));
  choices.optimizer_tier.assign(graph.blocks.size(), request_.optimizer_tier.value_or(spare));
  choices.gradient_tier.assign(graph.blocks.size(), spare);
  choices.fetches_rows = outline.fetches_rows && may_fetch_rows(graph, choices);
  choices.saved.assign(graph.units.size(), outline.spare);
  choices.boundary.assign(graph.units.size(), outline.spare_boundary);
  return choices;
}

Plan Filling::build(const Choices& choices) {
  ++plans_built_;
  Plan plan = build_schedule(graph_of(graphs_, choices), choices);
  if (request_.evaluates) plan.evaluate = build_evaluation(*graphs_.tiled, plan);
  pack(plan);
  operations_built_ += plan.step.ops.size() + plan.flush.ops.size();
  return plan;
}

bool Filling::accept(const Choices& choices, Bytes device_limit) {
  Plan plan = build(choices);
  const Bytes device = plan.peak[static_cast<int>(Tier::device)], nvme = plan.peak[static_cast<int>(Tier::nvme)];
  device_room_ = device_limit - device;
  const Bytes device_lack = -device_room_, nvme_lack = nvme - request_.budgets.nvme;
  if (device_lack <= 0 && nvme_lack <= 0) {
    plan_ = std::move(plan);
    return true;
  }
  const auto total = [](Bytes a, Bytes b) { return std::max<Bytes>(a, 0) + std::max<Bytes>(b, 0); };
  const Lack lack =
      device_lack <= 0 ? Lack{Tier::nvme, nvme, request_.budgets.nvme} : Lack{Tier::device, device, device_limit};
  if (!least_lack_ || total(device_lack, nvme_lack) < least_total_) {
    least_lack_ = lack;
    least_total_ = total(device_lack, nvme_lack);
  }
  return false;
}

std::optional<Plan> Filling::in_core(const Outline& outline) {
  Choices choices = start(outline);
  if (speculates(choices)) return std::nullopt;
  const UnitGraph& graph = graph_of(graphs_, choices);
  Bytes resident = 0;
  for (const ParameterBlock& block : graph.blocks) resident += bytes_at_rest(request_.sharding, block, request_.form);
  if (resident > request_.budgets.device) return std::nullopt;
  for (auto* tiers : {&choices.weight_tier, &choices.optimizer_tier, &choices.gradient_tier})
    std::fill(tiers->begin(), tiers->end(), Tier::device);
  choices.fetches_rows = false;
  if (request_.activations == SavedRequest::automatic || request_.activations == SavedRequest::device) {
    std::fill(choices.boundary.begin(), choices.boundary.end(), Boundary::keep);
    std::fill(choices.saved.begin(), choices.saved.end(), Saved::keep);
  }
  if (!accept(choices, request_.budgets.device)) return std::nullopt;
  return std::move(plan_);
}

// Row after row, as many items as there is room for; what a row leaves is the next one's.
std::vector<int> Filling::most_within(const std::vector<Row>& rows, Bytes room) {
  std::vector<int> counts;
  for (const Row& row : rows) {
    int count = 0;
    while (count < std::ssize(row.sizes) && row.sizes[count] <= room) room -= row.sizes[count++];
    counts.push_back(count);
  }
  return counts;
}

std::vector<Filling::Row> Filling::rows_of(const Outline& outline, const Choices& choices) const {
  const UnitGraph& graph = graph_of(graphs_, choices);
  // A gradient that is complete with its unit's backward and updated then rests nowhere.
  const bool gradients_add_up = choices.order == Order::horizontal && choices.micro_batches > 1;
  const bool gradients_wait = choices.update != UpdateTime::in_backward;
  const Bytes gradient_bytes = gradients_add_up ? 4 : gradients_wait ? gradient_bytes_per_element(request_.form) : 0;
  const Bytes weight_bytes = bytes_per_element(request_.form, StateKind::weight);
  // Rows are fetched from NVMe: their blocks stay there.
  const auto stays = [&graph, fetches_rows = choices.fetches_rows](int block) { return fetches_rows && graph.blocks[block].looked_up; };
  const auto first_blocks = [stays](std::vector<Tier>& tiers, int k) {
    for (int block = 0; block < k; ++block) {
      if (!stays(block)) tiers[block] = Tier::device;
    }
  };
  Row weights{{}, [first_blocks](Choices& c, int k) { first_blocks(c.weight_tier, k); }};
  Row gradients{{}, [first_blocks](Choices& c, int k) { first_blocks(c.gradient_tier, k); }};
  Row optimizer{{}, [first_blocks](Choices& c, int k) { first_blocks(c.optimizer_tier, k); }};
  for (int block = 0; block < std::ssize(graph.blocks); ++block) {
    const ParameterBlock& of = graph.blocks[block];
    // What stays where it is, on NVMe or on the device, takes nothing.
    const auto taken = [&](const std::vector<Tier>& tiers, Bytes bytes) { return stays(block) || tiers[block] == Tier::device ? 0 : bytes; };
    const Bytes weight = elements_at_rest(request_.sharding, of, StateKind::weight) * weight_bytes;
    weights.sizes.push_back(taken(choices.weight_tier, weight));
    gradients.sizes.push_back(taken(choices.gradient_tier, waiting_elements(request_.sharding, of) * gradient_bytes));
    optimizer.sizes.push_back(taken(choices.optimizer_tier, bytes_at_rest(request_.sharding, of, request_.form) - weight));
  }
  Row boundary{{}, [](Choices& c, int k) { std::fill_n(c.boundary.begin(), k, Boundary::keep); }};
  // The last units' values are wanted first in the backward and would rest for the shortest time: they stay first.
  Row saved{{}, [](Choices& c, int k) { std::fill_n(c.saved.rbegin(), k, Saved::keep); }};
  for (const Unit& unit : graph.units) {
    const UnitValues values = values_of(graph, unit);
    boundary.sizes.push_back(outline.spare_boundary == Boundary::keep ? 0 : values.boundary * choices.micro_batches);
    saved.sizes.push_back(outline.spare == Saved::keep ? 0 : values.saved * choices.micro_batches);
  }
  std::reverse(saved.sizes.begin(), saved.sizes.end());
  const bool may_keep = (request_.activations == SavedRequest::automatic && outline.fill != Fill::nothing) ||
                        request_.activations == SavedRequest::device;
  const bool may_raise = !speculates(choices);
  std::vector<Row> rows;
  if (may_keep) rows.push_back(std::move(boundary));
  if (outline.fill != Fill::nothing && !request_.parameter_tier && may_raise) rows.push_back(std::move(weights));
  rows.push_back(std::move(gradients));
  const bool optimizer_rests = outline.fill != Fill::nothing && !request_.optimizer_tier && may_raise;
  if (optimizer_rests && outline.fill == Fill::optimizer_first) rows.push_back(std::move(optimizer));
  if (may_keep) rows.push_back(std::move(saved));
  if (optimizer_rests && outline.fill == Fill::saved_first) rows.push_back(std::move(optimizer));
  return rows;
}

std::optional<Plan> Filling::fill(const Outline& outline) {
  const Choices bare = start(outline);
  const std::size_t built_before = operations_built_;
  if (!accept(bare, request_.budgets.device)) return std::nullopt;
  const std::vector<Row> rows = rows_of(outline, bare);
  // What an item takes of the device is less than its bytes where it is no longer staged, and how well the rest packs only a plan
  // can tell: the bytes that are dealt out are corrected by what the plan of them leaves or lacks.
  std::vector<int> fitting(rows.size(), 0);
  Bytes fits = 0, too_many = std::numeric_limits<Bytes>::max();
  Bytes dealt = static_cast<Bytes>(share_ * static_cast<double>(device_room_));
  const Bytes limit = request_.budgets.device - device_room_ + dealt;
  for (int plans = 0; plans < kPlansOfAFilling && operations_built_ - built_before < kOperationsOfAFilling; ++plans) {
    const std::vector<int> counts = most_within(rows, dealt);
    if (counts == fitting) break;
    Choices trial = bare;
    for (std::size_t row = 0; row < rows.size(); ++row) rows[row].raise_first(trial, counts[row]);
    if (accept(trial, limit)) {
      fitting = counts;
      fits = dealt;
      if (device_room_ <= request_.budgets.device / kRoomNotWorthAPlan) break;
    } else {
      too_many = dealt;
    }
    dealt += device_room_;
    if (dealt <= fits || dealt >= too_many) dealt = fits + (too_many - fits) / 2;
  }
  return std::move(plan_);
}

Bytes Filling::least_device(const Outline& outline) { return build(start(outline)).peak[static_cast<int>(Tier::device)]; }

}  // namespace spillway
