// The figures of a plan that people ask for; the table, plan.json and the pages print these.
// Not here: printing (trainer/show/plan_report.h, plan_file.h, trainer/show/plan_page.h), the prediction itself
// (memory/search/simulate.h).
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "trainer/plan/planned_run.h"

namespace spillway {

struct LaneFigures {
  Lane lane = Lane::compute;
  double work = 0;    // in a step: floating-point operations on the compute lane, bytes on the others
  double busy_s = 0;  // seconds of this work at the lane's own rate
  double share = 0;   // share of the step
  double rate() const { return work / busy_s; }
  bool computes() const { return lane == Lane::compute; }
  std::string_view unit() const { return computes() ? "flops" : "bytes"; }
};

struct PlanFigures {
  std::vector<LaneFigures> lanes;  // the lanes that have work
  double step_s = 0;
  Bound bound;
  double tokens_per_step = 0, tokens_per_s = 0;
  double flops_per_token = 0;                         // of the model: recomputation does not count twice
  double best_matrix_flops = 0;                       // highest rate of matrix products of the machine, per second
  double model_flops_utilization = 0;                 // MFU
  Bytes nvme_read_bytes = 0, nvme_written_bytes = 0;  // in each step, by its operations
  double durable_bytes = 0;                           // in each step, written to make steps durable
  // Number of tokens in a step from which compute binds under these choices, because traffic that happens once in a step is then
  // hidden. Nothing if compute never binds.
  std::optional<double> tokens_until_compute_binds;
};

// For a run whose plan fits.
PlanFigures figures_of(const PlannedRun& run, const PreparedModel& model);

// Bytes that a rank takes in the layout of other trainers, with the same batch and sharding (trainer/plan/peer_bytes.h).
struct PeerFigures {
  double state_bytes = 0;                        // weights, gradients, fp32 master and moments
  std::array<double, 4> state_bytes_of_stage{};  // the same under each ZeRO stage, with the same number of ranks
  double activation_bytes_per_layer = 0;         // for a micro-batch, without recomputation
};
PeerFigures peer_figures_of(const PlannedRun& run, const PreparedModel& model, const RunOptions& options);

// Floating-point operations of the model's own arithmetic, forward and backward.
double flops_per_token(const PreparedModel& model);

}  // namespace spillway
