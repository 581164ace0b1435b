#include "trainer/plan/plan_figures.h"

#include <algorithm>
#include <cmath>

#include "trainer/plan/peer_bytes.h"

namespace spillway {
namespace {

double flops_of(const Work& work) { return work.gemm_flops + work.attention_flops; }

std::optional<double> tokens_until_compute_binds(const PlannedRun& run, const UnitGraph& graph) {
  const StepBound& bound = run.outcome.prediction.bound;
  const auto binds_at = [&](double count) { return bound.with_micro_batches(count).lane() == Lane::compute; };
  // Once compute has more work than any other lane this stays so, because its share grows fastest: halving finds the smallest
  // number.
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
  // A tiled head computes its logits again in the backward; the fused head does not.
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
  figures.bound = prediction.bound.of_step();
  const int ranks = plan.choices.sharding.ranks;
  figures.tokens_per_step = static_cast<double>(graph.rows * plan.choices.micro_batches * ranks);
  figures.tokens_per_s = figures.tokens_per_step / prediction.step_s;
  figures.flops_per_token = flops_per_token(model);
  figures.best_matrix_flops = std::max(run.machine.gemm_bf16_flops, run.machine.gemm_fp32_flops);
  figures.model_flops_utilization = figures.flops_per_token * figures.tokens_per_s / ranks / figures.best_matrix_flops;
  PerLane work;
  for (const Op& op : plan.step.ops) {
    const int times = times_in(op.when, turns_of(plan.choices));
    work[op.lane] += times * (op.lane == Lane::compute  ? flops_of(op.work)
                              : op.lane == Lane::update ? op.work.bytes
                                                        : bytes_a_step(plan.choices, op));
    if (op.lane == Lane::nvme_read) figures.nvme_read_bytes += times * op.bytes;
    if (op.lane == Lane::nvme_write) figures.nvme_written_bytes += times * op.bytes;
  }
  for (const Lane lane : kAll<Lane>) {
    const double busy = prediction.busy_s[lane];
    if (work[lane] > 0) figures.lanes.push_back({lane, work[lane], busy, busy / prediction.step_s});
  }
  if (run.durability) figures.durable_bytes = run.durability->bytes_per_step();
  figures.tokens_until_compute_binds = tokens_until_compute_binds(run, graph);
  return figures;
}

PeerFigures peer_figures_of(const PlannedRun& run, const PreparedModel& model, const RunOptions& options) {
  const ModelConfig& config = model.model().config;
  const UnitGraph& graph = model.tiled().graph;
  const std::int64_t trained = graph.trained_parameters, frozen = graph.parameters - trained;
  PeerFigures peer;
  peer.state_bytes = peer_state_bytes(trained, frozen, run.request.sharding);
  Sharding sharding = run.request.sharding;
  for (sharding.stage = 0; sharding.stage < std::ssize(peer.state_bytes_of_stage); ++sharding.stage)
    peer.state_bytes_of_stage[static_cast<std::size_t>(sharding.stage)] = peer_state_bytes(trained, frozen, sharding);
  peer.activation_bytes_per_layer =
      peer_activation_bytes(model.seq_length(), options.batch.micro_batch_size, config.hidden, config.heads);
  return peer;
}

}  // namespace spillway
