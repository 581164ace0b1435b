#include "memory/filling.h"

#include <algorithm>

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
  choices.slots = outline.slots;
  choices.lookahead = outline.lookahead;
  choices.update_spread = outline.update_spread;
  choices.update_chunk = outline.update_chunk;
  choices.gives_logits = request_.gives_logits;
  choices.weight_tier.assign(graph.blocks.size(), request_.parameter_tier.value_or(spare));
  choices.optimizer_tier.assign(graph.blocks.size(), request_.optimizer_tier.value_or(spare));
  choices.gradient_tier.assign(graph.blocks.size(), spare);
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

bool Filling::accept(const Choices& choices) {
  Plan plan = build(choices);
  const Bytes device = plan.peak[static_cast<int>(Tier::device)], nvme = plan.peak[static_cast<int>(Tier::nvme)];
  const Bytes device_lack = device - request_.budgets.device, nvme_lack = nvme - request_.budgets.nvme;
  if (device_lack <= 0 && nvme_lack <= 0) {
    plan_ = std::move(plan);
    return true;
  }
  const auto total = [](Bytes a, Bytes b) { return std::max<Bytes>(a, 0) + std::max<Bytes>(b, 0); };
  const Lack lack =
      device_lack <= 0 ? Lack{Tier::nvme, nvme, request_.budgets.nvme} : Lack{Tier::device, device, request_.budgets.device};
  if (!least_lack_ || total(device_lack, nvme_lack) < least_total_) {
    least_lack_ = lack;
    least_total_ = total(device_lack, nvme_lack);
  }
  return false;
}

// Applies the most of the items in a row that still fits. The bytes that an item takes tell where to look first; what it no
// longer needs in staging, and how well the rest packs, only a plan can tell.
void Filling::raise(Choices& choices, std::span<const Bytes> sizes, const Apply& apply) {
  const int most = static_cast<int>(sizes.size());
  // The last few items of a long row are not worth a plan each.
  const int tolerance = most / 64;
  Bytes room = request_.budgets.device - plan_.peak[static_cast<int>(Tier::device)];
  int guess = 0;
  while (guess < most && sizes[guess] <= room) room -= sizes[guess++];
  int fits = 0, too_many = most + 1, stride = 1;
  for (int k = std::max(guess, 1); fits + tolerance + 1 < too_many;) {
    Choices trial = choices;
    apply(trial, k);
    const bool fitted = accept(trial);
    (fitted ? fits : too_many) = k;
    const int next = fitted ? k + stride : k - stride;
    k = next > fits && next < too_many ? next : (fits + too_many) / 2;
    stride *= 2;
  }
  apply(choices, fits);
}

std::optional<Plan> Filling::in_core(const Outline& outline) {
  Choices choices = start(outline);
  if (speculates(choices)) return std::nullopt;
  const UnitGraph& graph = graph_of(graphs_, choices);
  Bytes resident = 0;
  for (const ParameterBlock& block : graph.blocks) resident += block.elements * bytes_per_element(request_.form);
  if (resident > request_.budgets.device) return std::nullopt;
  for (auto* tiers : {&choices.weight_tier, &choices.optimizer_tier, &choices.gradient_tier})
    std::fill(tiers->begin(), tiers->end(), Tier::device);
  if (request_.activations == SavedRequest::automatic || request_.activations == SavedRequest::device) {
    std::fill(choices.boundary.begin(), choices.boundary.end(), Boundary::keep);
    std::fill(choices.saved.begin(), choices.saved.end(), Saved::keep);
  }
  if (!accept(choices)) return std::nullopt;
  return std::move(plan_);
}

std::optional<Plan> Filling::fill(const Outline& outline) {
  Choices choices = start(outline);
  if (!accept(choices)) return std::nullopt;
  const UnitGraph& graph = graph_of(graphs_, choices);
  std::vector<Bytes> weights, gradients, optimizer, boundary, saved;
  const bool gradients_wait = choices.update == UpdateTime::in_next_forward;
  const Bytes weight_bytes = bytes_per_element(request_.form, StateKind::weight);
  for (const ParameterBlock& block : graph.blocks) {
    weights.push_back(block.elements * weight_bytes);
    gradients.push_back(gradients_wait ? block.elements * gradient_bytes_per_element(request_.form) : 0);
    optimizer.push_back(block.elements * (bytes_per_element(request_.form) - weight_bytes));
  }
  for (const Unit& unit : graph.units) {
    const UnitValues values = values_of(graph, unit);
    boundary.push_back(values.boundary * choices.micro_batches);
    saved.push_back(values.saved * choices.micro_batches);
  }
  std::reverse(saved.begin(), saved.end());
  const bool may_keep = (request_.activations == SavedRequest::automatic && outline.fill != Fill::nothing) ||
                        request_.activations == SavedRequest::device;
  const auto raise_weights = [&] {
    if (!request_.parameter_tier && !speculates(choices))
      raise(choices, weights, [](Choices& c, int k) { std::fill_n(c.weight_tier.begin(), k, Tier::device); });
  };
  const auto raise_optimizer = [&] {
    if (!request_.optimizer_tier && !speculates(choices))
      raise(choices, optimizer, [](Choices& c, int k) { std::fill_n(c.optimizer_tier.begin(), k, Tier::device); });
  };
  // The last units' values are wanted first in the backward and would rest for the shortest time: they stay first.
  const auto raise_saved = [&] {
    if (may_keep) raise(choices, saved, [](Choices& c, int k) { std::fill_n(c.saved.rbegin(), k, Saved::keep); });
  };
  if (may_keep) raise(choices, boundary, [](Choices& c, int k) { std::fill_n(c.boundary.begin(), k, Boundary::keep); });
  if (outline.fill != Fill::nothing) raise_weights();
  raise(choices, gradients, [](Choices& c, int k) { std::fill_n(c.gradient_tier.begin(), k, Tier::device); });
  switch (outline.fill) {
    case Fill::saved_first:
      raise_saved(), raise_optimizer();
      break;
    case Fill::optimizer_first:
      raise_optimizer(), raise_saved();
      break;
    case Fill::nothing:
      raise_saved();
      break;
  }
  return std::move(plan_);
}

Bytes Filling::least_device(const Outline& outline) { return build(start(outline)).peak[static_cast<int>(Tier::device)]; }

}  // namespace spillway
