#include "trainer/plan/prepared_model.h"

#include <fmt/core.h>

#include <algorithm>

#include "memory/base/error.h"
#include "models/build.h"
#include "models/cpu/cpu_scratch.h"
#include "models/cuda/cuda_scratch.h"
#include "trainer/machine/open_device.h"
#include "trainer/machine/profile_file.h"
#include "trainer/options/adapter_of.h"
#include "trainer/options/model_of.h"
#include "trainer/options/validate_options.h"
#include "trainer/plan/saved_plan.h"

namespace spillway {
namespace {

// Of packs: a whole sequence where the data are not read, as on other ranks than the one that plans.
double mean_document(const DataOptions& data, std::int64_t sequence) {
  if (!data.packing) return 0;
  const auto whole = static_cast<double>(sequence);
  return data.mean_document > 0 ? std::min(data.mean_document, whole) : whole;
}

BuildOptions build_options(const RunOptions& options, std::int64_t sequence, HeadMode head, ExpertsForm experts,
                           const ScratchBound& scratch) {
  return {.dtype = options.precision.dtype,
          .micro_batch = options.batch.micro_batch_size,
          .sequence = sequence,
          .head = head,
          .scratch = scratch,
          .mean_document = mean_document(options.data, sequence),
          .experts = experts,
          .adapter = adapter_spec_of(options)};
}

// The machine that a plan is, or was, made for; nothing if that is this machine.
std::optional<MachineProfile> machine_planned_for(const MemoryOptions& memory) {
  if (memory.plan.empty()) return memory.profile.empty() ? std::nullopt : std::optional(profile_named(memory.profile));
  try {
    return machine_of_plan(memory.plan);
  } catch (const InputError&) {
    return std::nullopt;  // the code that loads the plan reports the error
  }
}

// The traits of the planned machine, so that a plan for it is the same wherever it is made or run; but those of this machine for
// a run here, if the planned machine's kernels may use less scratch memory than this one's.
CpuTraits traits_for(const RunOptions& options, Where where, int threads) {
  const CpuTraits here = traits_of_this_cpu(threads);
  const std::optional<MachineProfile> machine = machine_planned_for(options.memory);
  if (!machine) return here;
  const int of_rank = std::max(1, machine->threads / static_cast<int>(options.parallel.ranks_here()));
  const bool covers =
      of_rank >= here.threads && (machine->instructions == Instructions::unknown || machine->instructions == here.instructions);
  return where == Where::here && !covers ? here : CpuTraits{of_rank, machine->instructions};
}

// Scratch memory of whatever computes: a GPU, of this machine or of the planned one, or a CPU.
ScratchBound scratch_for(const RunOptions& options, Where where, int threads) {
  const std::optional<MachineProfile> machine = machine_planned_for(options.memory);
  const bool of_gpu = options.gpu || (machine && has_devices(*machine) && !is_apart(options));
  if (of_gpu) return cuda::scratch_bytes;
  refuse_type_of_gpus(options.precision);
  return cpu_scratch_bound(traits_for(options, where, threads));
}

ResolvedModel resolved(const RunOptions& options, Where where) {
  return model_of(options, where == Where::here ? Weights::of_directory : Weights::if_there);
}

// Number of layers on which the planner compares outlines: few if a layer has many units.
std::int64_t layers_to_weigh(const ModelConfig& config, ExpertsForm experts) {
  constexpr std::int64_t units = 96, fewest = 3, most = 8;
  const Cuts cuts = canonical_cuts(config);
  std::int64_t of_mlp = (config.mlp_width + cuts.mlp_columns - 1) / cuts.mlp_columns;
  if (config.experts > 0)
    of_mlp = experts == ExpertsForm::layer ? 1 : (config.experts + cuts.experts_a_group - 1) / cuts.experts_a_group;
  return std::clamp(units / (1 + of_mlp), fewest, most);
}

bool has_groups(const ModelConfig& config) {
  return config.experts > canonical_cuts(config).experts_a_group || config.shared_expert_width > 0;
}

}  // namespace

PreparedModel::PreparedModel(const RunOptions& options, Where where)
    : options_(options),
      model_(resolved(options, where)),
      seq_length_(seq_length_for(options, model_.config.max_positions)),
      pool_(threads_of(options)),
      scratch_(scratch_for(options, where, threads_of_rank(options))),
      whole_(compiled(ExpertsForm::layer)) {
  refuse_other_targets(options, tiled().graph);
  graphs_ = whole_.graphs();
  if (!has_groups(model_.config)) return;
  in_groups_ = compiled(ExpertsForm::groups);
  graphs_in_groups_ = in_groups_->graphs();
  graphs_.in_groups = &graphs_in_groups_;
}

PreparedModel::Form PreparedModel::compiled(ExpertsForm experts) const {
  const auto with = [&](const ModelConfig& config, HeadMode head) {
    return build_model(config, build_options(options_, seq_length_, head, experts, scratch_));
  };
  Form form{with(model_.config, HeadMode::tiled), with(model_.config, HeadMode::fused), {}, {}};
  const std::int64_t thin_layers = layers_to_weigh(model_.config, experts);
  if (model_.config.layers <= 2 * thin_layers) return form;
  ModelConfig thin = model_.config;
  thin.layers = thin_layers;
  thin.windows.resize(std::min<std::size_t>(thin.windows.size(), thin_layers));
  thin.dense_layers.resize(std::min<std::size_t>(thin.dense_layers.size(), thin_layers));
  form.thin_tiled = with(thin, HeadMode::tiled);
  form.thin_fused = with(thin, HeadMode::fused);
  return form;
}

GraphCandidates PreparedModel::Form::graphs() const {
  GraphCandidates graphs{&tiled.graph, &fused.graph};
  if (thin_tiled) graphs.thin_tiled = &thin_tiled->graph, graphs.thin_fused = &thin_fused->graph;
  return graphs;
}

const PreparedModel::OfRank& PreparedModel::rank_with(int rank) const {
  const auto at = static_cast<std::size_t>(rank);
  if (ranks_.size() <= at) ranks_.resize(at + 1);
  OfRank& of = ranks_[at];
  if (of.device) return of;
  const int sharers = options_.parallel.launch ? 1 : static_cast<int>(options_.parallel.ranks);
  if (options_.parallel.ranks > 1)
    of.own = std::make_unique<ThreadPool>(threads_of_rank(options_), PoolPriority::normal, sharers);
  of.pool = of.own ? of.own.get() : &pool_;
  of.device = open_device(options_, *of.pool, rank);
  return of;
}

void refuse_known_machine(const RunOptions& options) {
  if (!names_known_machine(options.memory.profile)) return;
  throw InputError(fmt::format("--profile {}: a run needs the profile of the machine that it runs on", options.memory.profile),
                   "spillway plan takes the names of machines; without --profile this machine is measured.");
}

}  // namespace spillway
