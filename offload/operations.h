// The operations of the compute and update lanes, each executed on the buffers that it was bound to.
// Not here: when they run (lane_runner.h), reads and writes (nvme_lane.h), the kernels (models/, optimizer_ops.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "memory/parallel.h"
#include "memory/plan.h"
#include "models/backend.h"
#include "offload/bound_program.h"
#include "offload/optimizer_ops.h"
#include "offload/row_ops.h"
#include "offload/run_under_way.h"
#include "offload/update_hashes.h"

namespace spillway {

class Operations {
 public:
  // `device` is where the device's own code has its memory; all must outlive this. `seed` is that of stochastic rounding.
  // `hashes` is null where state is not durable.
  Operations(const Plan& plan, const UnitGraph& graph, Backend& backend, int threads, std::byte* device, std::uint64_t seed,
             UpdateHashes* hashes);

  // Before a step whose tokens are in place begins.
  void note_tokens(int token_set);
  // Why the run must stop, where its loss or a gradient came out not finite; else empty.
  std::string execute(const Run& run, int turn, const BoundOp& bound);

  // Of the device: int32 [n] of a micro-batch of the step, those of the next behind them; and its targets.
  Bytes tokens_offset(int token_set, int micro_batch) const;
  Bytes targets_offset(int token_set, int micro_batch) const;
  // The inputs of all micro-batches of a strip.
  std::span<const std::int32_t> tokens(int token_set, int turn, const Strip& strip) const;
  Bytes logits_offset() const { return plan_.resident[static_cast<std::size_t>(plan_.logits_buffer)].offset; }
  // By which the gradients of the last run that took their norm are to be scaled.
  double clip_factor() const { return factor()[1]; }

 private:
  std::byte* resident(int buffer) const { return device_ + plan_.resident[buffer].offset; }
  MicroBatchWords* words() const { return reinterpret_cast<MicroBatchWords*>(resident(plan_.loss_buffer)); }  // [micro-batches]
  double* norm_words() const { return reinterpret_cast<double*>(resident(plan_.norm_buffer)); }
  double* factor() const { return reinterpret_cast<double*>(resident(plan_.factor_buffer)); }  // the norm and the clip factor
  void compute(const Run& run, int turn, const BoundOp& bound);
  int first_micro_batch(int turn, const Strip& strip) const { return turn * plan_.choices.group + strip.first; }  // of the step
  std::string sum_losses(const Run& run) const;
  std::string take_norm(StepControl& step);
  // `factor`: of the clipping of what is applied.
  AdamWSettings settings_of(const StepControl& step, const double* factor) const;
  bool update(const Run& run, int turn, const BoundOp& bound);  // false: a gradient of the block is not finite
  std::string gradient_not_finite(int block) const;
  void update_rows(const Run& run, int turn, const BoundOp& bound) const;
  std::string finish_gradient(const Run& run, const BoundOp& bound);

  const Plan& plan_;
  const UnitGraph& graph_;
  Backend& backend_;
  std::byte* const device_;
  const std::uint64_t seed_;
  UpdateHashes* const hashes_;
  OptimizerOps optimizer_;
  RowOps row_ops_;
  // Of the compute lane's operation: addresses for the micro-batch of its strip that it is at.
  std::vector<std::byte*> values_;
  std::vector<const std::byte*> weights_;
};

}  // namespace spillway
