#include "trainer/plan_figures.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "memory/peer_layout.h"

namespace spillway {
namespace {

using PerLane = std::array<double, kLanes>;

double flops_of(const Work& work) { return work.gemm_flops + work.attention_flops; }

// What a lane's busy time is proportional to.
double weight_of(const Op& op, const MachineProfile& machine, const UnitGraph& graph) {
  if (op.lane == Lane::compute) return seconds_of(machine, graph, op.work);
  return op.lane == Lane::update ? op.work.bytes : static_cast<double>(op.bytes);
}

// Whether a plan for more micro-batches has more of these. In horizontal order the weights come, and the sums of gradients come
// and go, with each of them; the state itself moves once a step in either.
bool repeats_with_micro_batches(const Op& op, const Plan& plan) {
  if (op.micro_batch >= 0) return true;
  if (op.bytes == 0 || plan.choices.order == Order::vertical || plan.choices.micro_batches == 1) return false;
  return std::ranges::all_of(op.operands, [&](const Operand& operand) {
    if (operand.buffer < 0) return true;
    const Category category = buffer_of(plan, plan.step, operand.buffer).category;
    return category != Category::optimizer && (op.kind == OpKind::read || category != Category::parameters);
  });
}

std::optional<double> tokens_until_compute_binds(const PlannedRun& run, const UnitGraph& graph) {
  const Plan& plan = *run.outcome.plan;
  const int micro_batches = plan.choices.micro_batches;
  PerLane all{}, repeated{};
  for (const Op& op : plan.step.ops) {
    const double weight = weight_of(op, run.machine, graph);
    all[static_cast<int>(op.lane)] += weight;
    if (repeats_with_micro_batches(op, plan)) repeated[static_cast<int>(op.lane)] += weight;
  }
  PerLane once_s{}, each_s{};
  for (int lane = 0; lane < kLanes; ++lane) {
    const double share = all[lane] > 0 ? repeated[lane] / all[lane] : 0;
    each_s[lane] = run.outcome.prediction.busy_s[lane] * share / micro_batches;
    once_s[lane] = run.outcome.prediction.busy_s[lane] * (1 - share);
  }
  const auto binds_at = [&](double count) {
    PerLane busy;
    for (int lane = 0; lane < kLanes; ++lane) busy[lane] = once_s[lane] + each_s[lane] * count;
    return bound_of(busy, run.machine).lane == Lane::compute;
  };
  // Once compute has more work than another lane it keeps it, as its share grows fastest: halving finds where that begins.
  double high = 1;
  constexpr double kMost = 1 << 24;
  while (!binds_at(high) && high < kMost) high *= 2;
  if (!binds_at(high)) return std::nullopt;
  double low = high / 2;  // does not bind, or is less than one
  while (high - low > 1) {
    const double middle = std::floor((low + high) / 2);
    (binds_at(middle) ? high : low) = middle;
  }
  return high * static_cast<double>(graph.rows * run.request.sharding.ranks);
}

}  // namespace

double flops_per_token(const PreparedModel& model) {
  // The head in tiles computes its logits again in the backward; the fused one does not.
  const UnitGraph& graph = *model.graphs().fused;
  double flops = 0;
  for (const Unit& unit : graph.units)
    flops += flops_of(unit.forward_work) + flops_of(unit.backward_work) - unit.backward_work.repeated_flops;
  return flops / static_cast<double>(graph.rows);
}

PlanFigures figures_of(const PlannedRun& run, const PreparedModel& model) {
  const Plan& plan = *run.outcome.plan;
  const Prediction& prediction = run.outcome.prediction;
  const UnitGraph& graph = model.of(plan).graph;
  PlanFigures figures;
  figures.step_s = prediction.step_s;
  figures.bound_s = prediction.bound_s;
  figures.binding_lane = prediction.binding_lane;
  const int ranks = plan.choices.sharding.ranks;
  figures.tokens_per_step = static_cast<double>(graph.rows * plan.choices.micro_batches * ranks);
  figures.tokens_per_s = figures.tokens_per_step / prediction.step_s;
  figures.flops_per_token = flops_per_token(model);
  figures.best_matrix_flops = std::max(run.machine.gemm_bf16_flops, run.machine.gemm_fp32_flops);
  figures.model_flops_utilization = figures.flops_per_token * figures.tokens_per_s / ranks / figures.best_matrix_flops;
  PerLane work{};
  for (const Op& op : plan.step.ops) {
    work[static_cast<int>(op.lane)] += op.lane == Lane::compute  ? flops_of(op.work)
                                       : op.lane == Lane::update ? op.work.bytes
                                                                 : static_cast<double>(op.bytes);
    if (op.lane == Lane::nvme_read) figures.nvme_read_bytes += op.bytes;
    if (op.lane == Lane::nvme_write) figures.nvme_written_bytes += op.bytes;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    const double busy = prediction.busy_s[lane];
    if (busy > 0) figures.lanes.push_back({static_cast<Lane>(lane), work[lane], busy, busy / prediction.step_s});
  }
  if (run.durability) figures.durable_bytes = run.durability->bytes_per_step();
  figures.tokens_until_compute_binds = tokens_until_compute_binds(run, graph);
  return figures;
}

PeerFigures peer_figures_of(const PlannedRun& run, const PreparedModel& model, const RunOptions& options) {
  const ModelConfig& config = model.model().config;
  const std::int64_t parameters = parameter_count(config);
  PeerFigures peer;
  peer.state_bytes = peer_state_bytes(parameters, run.request.sharding);
  Sharding sharding = run.request.sharding;
  for (sharding.stage = 0; sharding.stage < std::ssize(peer.state_bytes_of_stage); ++sharding.stage)
    peer.state_bytes_of_stage[static_cast<std::size_t>(sharding.stage)] = peer_state_bytes(parameters, sharding);
  peer.activation_bytes_per_layer =
      peer_activation_bytes(model.seq_length(), options.batch.micro_batch_size, config.hidden, config.heads);
  return peer;
}

}  // namespace spillway
