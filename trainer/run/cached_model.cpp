#include "trainer/run/cached_model.h"

#include <algorithm>
#include <optional>

#include "memory/base/error.h"
#include "models/build.h"
#include "models/cpu/cpu_scratch.h"
#include "models/cuda/cuda_scratch.h"
#include "trainer/machine/open_device.h"
#include "trainer/options/adapter_of.h"
#include "trainer/options/model_of.h"
#include "trainer/plan/budgets.h"
#include "trainer/plan/evaluation_plan.h"
#include "trainer/plan/prepared_model.h"
#include "trainer/run/forward_run.h"

namespace spillway {
namespace {

// A prompt is read in parts of equal size, so that the longest prompt needs no padding rows.
std::int64_t rows_at_a_time(const CachedModelRequest& request) {
  const std::int64_t parts = (request.longest_prompt + request.most_rows - 1) / request.most_rows;
  return (request.longest_prompt + parts - 1) / parts;
}

CompiledModel compile(const CachedModelRequest& request, const ModelConfig& config, std::int64_t rows,
                      const ScratchBound& scratch) {
  return build_model(config, {.dtype = request.options.precision.dtype,
                              .micro_batch = 1,
                              .sequence = rows,
                              .head = HeadMode::logits,
                              .scratch = scratch,
                              .context = request.context,
                              .experts = ExpertsForm::groups,
                              .adapter = adapter_spec_of(request.options)});
}

}  // namespace

struct CachedModel::Impl {
  explicit Impl(const CachedModelRequest& request)
      : model(model_of(request.options)),
        pool(threads_of(request.options)),
        device(open_device(request.options, pool)),
        scratch(request.options.gpu ? ScratchBound(cuda::scratch_bytes) : cpu_scratch_bound(traits_of_this_cpu(pool.threads()))),
        many(compile(request, model.config, rows_at_a_time(request), scratch)),
        one(compile(request, model.config, 1, scratch)) {
    // The plan is made for the many rows; the single row uses the same places.
    for (std::size_t unit = 0; unit < many.graph.units.size(); ++unit) {
      Bytes& workspace = many.graph.units[unit].forward_workspace;
      workspace = std::max(workspace, one.graph.units[unit].forward_workspace);
    }
    const NamedWeights weights = open_weights(request.options, model, many.graph, request.step);
    name = weights.name;
    plan = evaluation_plan(many.graph, request.options.precision.dtype, budgets_of_run(request.options, {}, Where::here),
                           {"generation", "a shorter prompt or fewer --max-new-tokens"});
    run.emplace(request.options,
                ExecutorOptions{
                    .plan = &plan, .model = &many, .evaluation = &many, .one_row = &one, .rank = {device.get(), &pool, nullptr}},
                weights);
  }

  ResolvedModel model;
  ThreadPool pool;
  std::unique_ptr<Device> device;
  ScratchBound scratch;
  CompiledModel many, one;
  std::string name;
  Plan plan;
  std::optional<ForwardRun> run;
  std::int64_t read = 0;
};

CachedModel::CachedModel(const CachedModelRequest& request) : impl_(std::make_unique<Impl>(request)) {}
CachedModel::~CachedModel() = default;

std::span<const float> CachedModel::begin(std::span<const std::int32_t> prompt) {
  const std::int64_t rows = impl_->many.graph.rows, length = static_cast<std::int64_t>(prompt.size());
  SPILLWAY_CHECK(length > 0, "a prompt without tokens");
  std::span<const float> logits;
  for (std::int64_t next = 0; next < length; next += rows) {
    // The last part ends with the prompt, and tokens that it reads again give the same values. Padding rows after a short prompt
    // are overwritten later.
    const std::int64_t first = std::clamp<std::int64_t>(length - rows, 0, next);
    logits = impl_->run->executor().logits(
        {.position = first, .row = std::min(rows, length - first) - 1}, [&](int, const MicroBatchRows& filled) {
          for (std::int64_t i = 0; i < rows; ++i)
            filled.tokens[static_cast<std::size_t>(i)] = first + i < length ? prompt[static_cast<std::size_t>(first + i)] : 0;
        });
  }
  impl_->read = length;
  return logits;
}

std::span<const float> CachedModel::next(std::int32_t token) {
  const std::int64_t position = impl_->read++;
  return impl_->run->executor().logits({.single_row = true, .position = position, .row = 0},
                                       [&](int, const MicroBatchRows& rows) { rows.tokens[0] = token; });
}

std::int64_t CachedModel::position() const noexcept { return impl_->read; }
const std::string& CachedModel::name() const noexcept { return impl_->name; }

CachedModel::Traffic CachedModel::traffic() const noexcept {
  Traffic traffic;
  traffic.device = impl_->plan.peak[Tier::device];
  for (const Op& op : impl_->plan.evaluate.ops) {
    if (op.lane == Lane::nvme_read) traffic.nvme += op.bytes;
    // A token reads only one row of an embedding.
    for (const Operand& operand : op.operands) {
      if (op.work.gemm_flops > 0 && operand.role == Role::weights) traffic.weights += operand.bytes;
    }
  }
  return traffic;
}

}  // namespace spillway
