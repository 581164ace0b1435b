#include "trainer/plan/prepared_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "memory/error.h"
#include "memory/freed_memory.h"
#include "models/build.h"
#include "models/strict_json.h"
#include "nvme/store.h"
#include "trainer/host/at_once.h"
#include "trainer/host/host.h"
#include "trainer/machine/copy_rate.h"
#include "trainer/machine/probe.h"
#include "trainer/machine/profile_file.h"
#include "trainer/plan/plan_file.h"
#include "trainer/plan/would_fit.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

BuildOptions build_options(const RunOptions& options, Where where, std::int64_t sequence, HeadMode head,
                           const CpuTraits& machine) {
  return {.dtype = options.precision.dtype,
          .micro_batch = options.batch.micro_batch_size,
          .sequence = sequence,
          .head = head,
          .scratch = cpu_scratch_bound(machine),
          .purpose = where == Where::here ? BuildPurpose::running : BuildPurpose::planning};
}

void refuse_ranks(const ParallelOptions& parallel) {
  if (parallel.ranks == 1) return;
  throw InputError(fmt::format("--ranks {}: this version plans for several ranks but trains with one", parallel.ranks),
                   "`spillway plan` says what they take and how fast they would be; run with --ranks 1.");
}

// The machine that a plan is, or was, made for, where that is not simply this one.
std::optional<MachineProfile> machine_planned_for(const MemoryOptions& memory) {
  if (memory.plan.empty()) return memory.profile.empty() ? std::nullopt : std::optional(profile_named(memory.profile));
  try {
    return machine_of_plan(memory.plan);
  } catch (const InputError&) {
    return std::nullopt;  // who takes the plan says what is wrong with it
  }
}

// Of the machine that is planned for, so that a plan for it is the same wherever it is made, and where it is run; if what its
// kernels may use is as much as this one's do.
CpuTraits traits_for(const RunOptions& options, Where where, int threads) {
  const CpuTraits here = traits_of_this_cpu(threads);
  const std::optional<MachineProfile> machine = machine_planned_for(options.memory);
  if (!machine) return here;
  const bool covers = machine->threads >= here.threads &&
                      (machine->instructions == Instructions::unknown || machine->instructions == here.instructions);
  return where == Where::here && !covers ? here : CpuTraits{machine->threads, machine->instructions};
}

ResolvedModel resolved(const RunOptions& options, Where where) {
  if (where == Where::here) refuse_ranks(options.parallel);
  return resolve_model(options.model.model);
}

std::optional<Tier> forced(TierChoice choice) {
  switch (choice) {
    case TierChoice::automatic:
      return std::nullopt;
    case TierChoice::device:
      return Tier::device;
    case TierChoice::host:
      return Tier::host;
    case TierChoice::nvme:
      return Tier::nvme;
  }
  return std::nullopt;
}

SavedRequest forced(ActivationChoice choice) {
  switch (choice) {
    case ActivationChoice::automatic:
      return SavedRequest::automatic;
    case ActivationChoice::host:
      return SavedRequest::host;
    case ActivationChoice::device:
      return SavedRequest::device;
    case ActivationChoice::recompute:
      return SavedRequest::recompute;
    case ActivationChoice::nvme:
      return SavedRequest::nvme;
  }
  return SavedRequest::automatic;
}

std::vector<StoreDirectory> directories_of(const MemoryOptions& memory) {
  std::vector<StoreDirectory> directories;
  for (const NvmeDirectory& directory : memory.nvme) directories.push_back({directory.path, directory.size.value_or(0)});
  return directories;
}

// Layers on which the planner weighs outlines: few where a layer has many units.
std::int64_t layers_to_weigh(const ModelConfig& config) {
  constexpr std::int64_t units = 96, fewest = 3, most = 8;
  const std::int64_t tile = canonical_cuts(config).mlp_columns;
  const std::int64_t of_mlp = config.experts > 0 ? 1 + config.experts : (config.mlp_width + tile - 1) / tile;
  return std::clamp(units / (1 + of_mlp), fewest, most);
}

// Machines with devices of their own are planned for; what this version runs on is the CPU.
void refuse_other_devices(const MachineProfile& machine, const RunOptions& options, Where where) {
  const MemoryOptions& memory = options.memory;
  if (!has_devices(machine)) return refuse_what_needs_a_device(memory);
  if (where == Where::here) {
    throw InputError(fmt::format("--profile {}: found a machine with devices of its own ({}), allowed in this version: one whose "
                                 "device is the CPU",
                                 shown_name(memory.profile), shown_name(machine.name)),
                     "`spillway plan` plans for it; a run takes the profile that `spillway probe --format json` wrote here.");
  }
  if (memory.device == DeviceChoice::cpu || memory.device == DeviceChoice::cpu_apart) {
    throw InputError(fmt::format("--device: found {} with the profile of {}, allowed: cuda, the device that it is of",
                                 memory.device == DeviceChoice::cpu ? "cpu" : "cpu-apart", shown_name(machine.name)));
  }
  for (const auto& [key, value] : {std::pair{"device_memory_bytes", static_cast<double>(machine.device_memory_bytes)},
                                   {"host_memory_bytes", static_cast<double>(machine.host_memory_bytes)},
                                   {"upload_bytes", machine.upload_bytes},
                                   {"download_bytes", machine.download_bytes}}) {
    if (value > 0) continue;
    throw InputError(
        fmt::format("--profile {}: has no {}, which a plan for a device of its own needs", shown_name(memory.profile), key));
  }
  if (options.parallel.ranks > std::max(machine.devices, 1)) {
    throw InputError(fmt::format("--ranks: found {} on {} with {}, allowed: at most one a device", options.parallel.ranks,
                                 shown_name(machine.name), counted(std::max(machine.devices, 1), "device")));
  }
}

// Copies between two mappings of one memory, by a core that computes otherwise.
void add_copies(MachineProfile& machine) {
  machine.upload_bytes = machine.download_bytes = measured_copy_bytes_per_s();
  machine.compute_beside_copy = 1 - 1.0 / std::max(2, machine.threads);
}

// What one rank has: ranks of a host share what is the host's.
MachineProfile machine_of_rank(MachineProfile machine, int ranks) {
  if (ranks == 1) return machine;
  for (double* rate : {&machine.update_bytes, &machine.nvme_read_bytes, &machine.nvme_write_bytes, &machine.nvme_mixed_read_bytes,
                       &machine.nvme_mixed_write_bytes, &machine.nvme_read_requests, &machine.nvme_write_requests}) {
    *rate /= ranks;
  }
  if (has_devices(machine)) return machine;
  for (double* rate :
       {&machine.gemm_bf16_flops, &machine.gemm_fp32_flops, &machine.attention_bf16_flops, &machine.attention_fp32_flops,
        &machine.memory_bytes, &machine.pointwise_bf16_bytes, &machine.pointwise_fp32_bytes, &machine.network_bytes}) {
    *rate /= ranks;
  }
  // They talk through its memory.
  if (machine.network_bytes == 0) machine.network_bytes = machine.memory_bytes;
  return machine;
}

// Ranks of one host share its memory and its directories; --device-memory is each one's.
Budgets budgets_of_rank(Budgets budgets, const RunOptions& options, const MachineProfile& machine) {
  const std::int64_t ranks = options.parallel.ranks;
  budgets.nvme /= ranks;
  budgets.host /= ranks;
  if (!options.memory.device_memory && !has_devices(machine)) budgets.device /= ranks;
  return budgets;
}

// What a profile in a file says of its machine's memory: a plan for it goes by that, a run has no more than there is.
void take_memory_of(const MachineProfile& machine, const RunOptions& options, Where where, Bytes& budget) {
  if (options.memory.device_memory || machine.device_memory_bytes == 0 || is_apart(options) || has_devices(machine)) return;
  const Bytes share = machine.device_memory_bytes / options.parallel.ranks;
  budget = where == Where::here ? std::min(budget, share) : share;
}

}  // namespace

PreparedModel::PreparedModel(const RunOptions& options, Where where)
    : model_(resolved(options, where)),
      seq_length_(seq_length_for(options, model_.config.max_positions)),
      pool_(usable_threads()),
      machine_(traits_for(options, where, pool_.threads())),
      tiled_(build_model(model_.config, build_options(options, where, seq_length_, HeadMode::tiled, machine_))),
      fused_(build_model(model_.config, build_options(options, where, seq_length_, HeadMode::fused, machine_))) {
  const std::int64_t thin_layers = layers_to_weigh(model_.config);
  if (model_.config.layers <= 2 * thin_layers) return;
  ModelConfig thin = model_.config;
  thin.layers = thin_layers;
  thin.windows.resize(std::min<std::size_t>(thin.windows.size(), thin_layers));
  thin_tiled_ = build_model(thin, build_options(options, where, seq_length_, HeadMode::tiled, machine_));
  thin_fused_ = build_model(thin, build_options(options, where, seq_length_, HeadMode::fused, machine_));
}

GraphCandidates PreparedModel::graphs() const noexcept {
  GraphCandidates graphs{&tiled_.graph, &fused_.graph};
  if (thin_tiled_) graphs.thin_tiled = &thin_tiled_->graph, graphs.thin_fused = &thin_fused_->graph;
  return graphs;
}

Budgets budgets_for(const RunOptions& options, Where where) {
  Budgets budgets;
  const Bytes margin = kProcessOverhead + 256 * kMiB;
  const Bytes available = std::max<Bytes>(0, available_memory() - margin);
  budgets.device = options.memory.device_memory.value_or(available);
  const auto directories = directories_of(options.memory);
  const bool told = std::all_of(directories.begin(), directories.end(),
                                [](const StoreDirectory& directory) { return directory.cap_bytes > 0; });
  if (told && where == Where::anywhere) {
    for (const StoreDirectory& directory : directories) budgets.nvme += directory.cap_bytes;
  } else if (!directories.empty()) {
    budgets.nvme = store_capacity(directories);
  }
  return budgets;
}

Budgets budgets_of(const MachineProfile& machine, const RunOptions& options) {
  // What a device's driver and libraries take of it, and a system of its host.
  constexpr Bytes device_margin = 512 * kMiB, host_margin = kProcessOverhead + 4 * kGiB;
  Budgets budgets;
  if (has_devices(machine)) {
    budgets.device = options.memory.device_memory.value_or(std::max<Bytes>(0, machine.device_memory_bytes - device_margin));
    budgets.host = options.memory.host_memory.value_or(std::max<Bytes>(0, machine.host_memory_bytes - host_margin));
  } else {
    budgets.device = options.memory.device_memory.value_or(machine.device_memory_bytes);
  }
  for (const NvmeDirectory& directory : options.memory.nvme) {
    if (!directory.size) {
      throw InputError(
          fmt::format("--nvme: found {} without a size, which for another machine cannot be looked up", directory.path),
          fmt::format("Give one: --nvme {}=SIZE", directory.path));
    }
    budgets.nvme += *directory.size;
  }
  return budgets;
}

Budgets budgets_of_run(const RunOptions& options, const MachineProfile& machine, Where where) {
  const bool elsewhere = names_known_machine(options.memory.profile) || (has_devices(machine) && !is_apart(options));
  Budgets budgets = budgets_of_rank(elsewhere ? budgets_of(machine, options) : budgets_for(options, where), options, machine);
  take_memory_of(machine, options, where, budgets.device);
  if (!is_apart(options)) return budgets;
  // Half of what there is stands for the device's memory.
  const MemoryOptions& memory = options.memory;
  RunOptions all = options;
  all.memory.device_memory.reset();
  const Bytes there = (elsewhere ? budgets_of(machine, all) : budgets_for(all, where)).device;
  budgets.device = memory.device_memory.value_or(std::max<Bytes>(0, there - memory.host_memory.value_or(there / 2)));
  budgets.host = memory.host_memory.value_or(std::max<Bytes>(0, there - budgets.device));
  return budgets;
}

void refuse_known_machine(const RunOptions& options) {
  if (!names_known_machine(options.memory.profile)) return;
  throw InputError(fmt::format("--profile {}: a run needs the profile of the machine that it runs on", options.memory.profile),
                   "spillway plan takes the names of machines; without --profile this machine is measured.");
}

// Micro-batches that go through all units together, where the flags say.
std::optional<int> group_of(const RunOptions& options, int micro_batches) {
  switch (options.memory.order) {
    case OrderChoice::automatic:
      return std::nullopt;
    case OrderChoice::horizontal:
      return 1;
    case OrderChoice::vertical:
      return micro_batches;
    case OrderChoice::groups:
      break;
  }
  if (micro_batches % options.memory.order_group == 0) return static_cast<int>(options.memory.order_group);
  throw InputError(fmt::format("--order {}: the {} of a step are no multiple of it", options.memory.order_group,
                               counted(micro_batches, "micro-batch", "micro-batches")),
                   "Give a divisor of --global-batch-size / --micro-batch-size, or horizontal, vertical or auto.");
}

PlanRequest plan_request(const RunOptions& options, const Budgets& budgets) {
  PlanRequest request;
  request.budgets = budgets;
  request.micro_batches = static_cast<int>(options.micro_batches());
  request.clip = options.optimizer.clip_grad > 0;
  const ParallelOptions& parallel = options.parallel;
  request.sharding = {.ranks = static_cast<int>(parallel.ranks),
                      .group = static_cast<int>(parallel.zero_group_size > 0 ? parallel.zero_group_size : parallel.ranks),
                      .stage = parallel.zero_stage};
  if (options.precision.dtype == DType::float32) {
    request.form = StateForm::fp32;
    if (options.precision.state == StateChoice::compact) {
      throw InputError("--state compact with --dtype fp32: compact state is made of bf16 halves",
                       "Use --dtype bf16, or --state exact.");
    }
  } else {
    request.form = options.precision.state == StateChoice::compact ? StateForm::compact : StateForm::exact;
  }
  request.group = group_of(options, request.micro_batches);
  switch (options.memory.update) {
    case UpdateChoice::automatic:
      break;
    case UpdateChoice::after:
      request.update = UpdateTime::after;
      break;
    case UpdateChoice::in_backward:
      request.update = UpdateTime::in_backward;
      break;
    case UpdateChoice::in_next_forward:
      request.update = UpdateTime::in_next_forward;
      break;
  }
  request.chain = budgets.host > 0 ? Chain::device_host_nvme : Chain::device_nvme;
  if (options.memory.update_on != UpdateOnChoice::automatic)
    request.update_tier = options.memory.update_on == UpdateOnChoice::host ? Tier::host : Tier::device;
  request.parameter_tier = forced(options.memory.parameter_tier);
  request.optimizer_tier = forced(options.memory.optimizer_tier);
  request.activations = forced(options.memory.activation_tier);
  request.durability = options.memory.durability == DurabilityChoice::step         ? Durability::step
                       : options.memory.durability == DurabilityChoice::checkpoint ? Durability::checkpoint
                                                                                   : Durability::automatic;
  if (options.memory.durability_interval > 0) request.durable_every = options.memory.durability_interval;
  // Steps that may be taken back are made durable one by one.
  request.expected_clip_rate = options.memory.durability_interval > 1 ? 1.0 : options.optimizer.expected_clip_rate;
  request.gives_logits = options.log.sample_interval > 0;
  request.evaluates = !options.data.eval_data.empty() || request.gives_logits;
  return request;
}

namespace {

MeasuredProfile measured_machine(const RunOptions& options, const PreparedModel& model, const LogSink& say) {
  if (options.memory.plan.empty()) return profile_for(options, model.pool(), say);
  if (auto profile = profile_at_hand(options, model.pool().threads())) return *std::move(profile);
  if (auto profile = machine_of_plan(options.memory.plan)) return *std::move(profile);
  return profile_for(options, model.pool(), say);  // a plan of before plans said what they were made for
}

}  // namespace

PlannedRun plan_run(const RunOptions& options, const PreparedModel& model, Where where, const LogSink& say) {
  PlannedRun run = plan_run_on(measured_machine(options, model, say), options, model, where);
  if (!run.outcome.plan) run.would_fit = flags_that_fit(run, model, options);
  return run;
}

PlannedRun plan_run_on(const MeasuredProfile& measured, const RunOptions& options, const PreparedModel& model, Where where) {
  if (options.micro_batches() > kMostMicroBatches) {
    throw InputError(
        fmt::format("--global-batch-size {} with --micro-batch-size {} makes {} micro-batches a step; at most {} can be planned",
                    options.batch.global_batch_size, options.batch.micro_batch_size, options.micro_batches(), kMostMicroBatches),
        "Use a larger --micro-batch-size.");
  }
  PlannedRun run;
  run.measured = measured;
  refuse_other_devices(run.measured, options, where);
  run.machine = machine_of_rank(as_seen(run.measured), static_cast<int>(options.parallel.ranks));
  if (is_apart(options)) add_copies(run.machine);
  run.request = plan_request(options, budgets_of_run(options, run.machine, where));
  if ((has_devices(run.measured) || is_apart(options)) && run.request.budgets.host <= 0) {
    throw InputError("--host-memory: found 0, allowed: more than 0, as what moves between NVMe and a device of its own goes "
                     "through the host's memory");
  }
  if (run.request.budgets.nvme > 0 && run.machine.nvme_read_bytes <= 0) {
    throw InputError(
        fmt::format("--profile {}: has no rates of a drive, which a plan with --nvme needs", shown_name(options.memory.profile)),
        "Make it with `spillway probe --nvme DIR --format json --out FILE`.");
  }
  const FreedMemoryKept freed_memory;
  if (!options.memory.plan.empty()) {
    run.outcome = outcome_from_file(options.memory.plan, model.graphs(), run.machine, run.request);
  } else {
    run.outcome = make_plan(model.graphs(), run.machine, run.request, at_once);
  }
  if (!run.outcome.refusal.empty()) {
    if (run.request.budgets.nvme == 0 && !options.memory.nvme.empty()) {
      throw BudgetError(fmt::format("--nvme {}: there is no room for a block of state", options.memory.nvme.front().path),
                        "Free space on that disk, or name a directory on another.");
    }
    throw InputError(run.outcome.refusal);
  }
  run.durability = durability_of(options, run.request, run.outcome,
                                 run.outcome.plan ? model.of(*run.outcome.plan).graph : model.tiled().graph, run.machine);
  return run;
}

void throw_does_not_fit(const PlannedRun& run) {
  const PlanOutcome& outcome = run.outcome;
  throw BudgetError(fmt::format("the run does not fit: the {} tier needs {} bytes ({}) and has {} ({}), {} bytes too few",
                                name_of(outcome.short_tier), outcome.needed, rounded_size(outcome.needed), outcome.budget,
                                rounded_size(outcome.budget), outcome.needed - outcome.budget),
                    words_of(run.would_fit));
}

}  // namespace spillway
