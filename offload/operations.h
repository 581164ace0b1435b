// Executes the operations of the compute, update and network lanes on the buffers that they are bound to: by threads of the host,
// which are done when start() returns, or by kernels of a device, which start() enqueues. Not here: when they run
// (lane_runner.h), reads and writes (nvme_lane.h), the kernels (models/, optimizer_ops.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "memory/base/parallel.h"
#include "memory/plan/plan.h"
#include "offload/bound_program.h"
#include "offload/control_mirror.h"
#include "offload/device.h"
#include "offload/optimizer_ops.h"
#include "offload/run_under_way.h"
#include "offload/update_hashes.h"

namespace spillway {

class Operations {
 public:
  // `memory` is that of the plan on the device; all must outlive this. `seed`: for stochastic rounding. `hashes`: null where
  // state is not durable. `threads`: for updates on the host. `communicator`: null for an only rank.
  Operations(const Plan& plan, const UnitGraph& graph, Device& device, TierMemory& memory, int threads, std::uint64_t seed,
             UpdateHashes* hashes, Communicator* communicator);

  // Called by the compute lane before a run's first operation there.
  void begin_run(const Run& run);
  // True when kernels of the device execute the operation, in the order of its compute_stream().
  bool is_enqueued(const BoundOp& bound) const { return kernels_ != nullptr && bound.op->lane == Lane::compute; }
  // gives_verdict(): true when a step's loss or gradients are judged once the operation is complete. needs_verdict(): true when
  // it may only start after all verdicts before it on its lane are known, as it applies gradients.
  bool gives_verdict(const BoundOp& bound) const;
  bool needs_verdict(const BoundOp& bound) const { return is_enqueued(bound) && bound.op->kind == OpKind::update; }
  // Executes or enqueues the operation. Returns why the run must stop, where its loss or a gradient is already known not to be
  // finite; else an empty string. Of several ranks all say the same: they judge only words that all have, by loss and norm.
  std::string start(const Run& run, int turn, const BoundOp& bound);
  // The same, once an enqueued operation is complete.
  std::string finish(const Run& run, const BoundOp& bound);

  // The offset on the device of a micro-batch's array; the next micro-batch's lies behind it.
  Bytes offset_of(TokenArray array, int token_set, int micro_batch) const;
  Bytes logits_offset() const { return plan_.resident[static_cast<std::size_t>(plan_.logits_buffer)].offset; }

 private:
  const std::int32_t* array(TokenArray array, const Run& run, int micro_batch) const;
  std::byte* resident(int buffer) const { return device_ + plan_.resident[buffer].offset; }
  MicroBatchWords* words() const { return reinterpret_cast<MicroBatchWords*>(resident(plan_.loss_buffer)); }  // [micro-batches]
  double* squares() const { return reinterpret_cast<double*>(resident(plan_.norm_buffer)); }   // of all blocks, by norm_words_
  double* factor() const { return reinterpret_cast<double*>(resident(plan_.factor_buffer)); }  // the norm and the clip factor
  void fill_words(const Run& run, int micro_batch, MicroBatchWords& words) const;
  int micro_batches_of(const Run& run) const { return run.evaluates ? 1 : plan_.choices.micro_batches; }
  std::string execute(const Run& run, int turn, const BoundOp& bound);
  void enqueue(const Run& run, int turn, const BoundOp& bound);
  void enqueue_update(const Run& run, int turn, const BoundOp& bound);
  // Begins the hashes that an update takes of its state on the way; null where it takes none.
  UpdateHashes* begin_hashes(const Run& run, int turn, const BoundOp& bound, std::int64_t step) const;
  void compute(const Run& run, int turn, const BoundOp& bound);
  void gather(const BoundOp& bound) const;
  void reduce(const BoundOp& bound) const;
  int first_micro_batch(int turn, const Strip& strip) const { return turn * plan_.choices.group + strip.first; }  // of the step
  // Sums the words of `ranks` ranks' micro-batches, in that order.
  std::string sum_losses(const Run& run, const MicroBatchWords* words, int ranks) const;
  std::string take_norm(StepControl& step, const double* squares);
  // `block_not_finite`: the last block whose gradient is not finite; -1: there is none.
  template <typename BlockNotFinite>
  std::string judge_norm(StepControl& step, const double* norm_and_factor, const BlockNotFinite& block_not_finite) const;
  // `factor`: the clip factor of the gradients that are applied.
  AdamWSettings settings_of(const StepControl& step, double factor) const;
  bool update(const Run& run, int turn, const BoundOp& bound);  // false: a gradient of the block is not finite
  std::string gradient_not_finite(int block) const;

  const Plan& plan_;
  const UnitGraph& graph_;
  Backend& backend_;
  std::byte* const device_;
  const std::uint64_t seed_;
  const std::vector<std::int64_t> norm_words_;  // norm_words()
  UpdateHashes* const hashes_;
  Communicator* const communicator_;
  const std::unique_ptr<KernelOptimizer> kernels_;  // null where threads of the host execute all operations
  std::optional<ControlMirror> mirror_;             // present where kernels do
  OptimizerOps optimizer_;
  // Addresses of the compute lane's operation for the current micro-batch of its strip.
  std::vector<std::byte*> values_;
  std::vector<const std::byte*> weights_;
};

}  // namespace spillway
