#include "trainer/plan/planned_run.h"

#include <fmt/core.h>

#include <algorithm>

#include "files/strict_json.h"
#include "memory/base/error.h"
#include "memory/base/freed_memory.h"
#include "memory/plan/chain.h"
#include "trainer/host/at_once.h"
#include "trainer/machine/profile_file.h"
#include "trainer/machine/rate_table.h"
#include "trainer/options/validate_options.h"
#include "trainer/plan/budgets.h"
#include "trainer/plan/plan_request.h"
#include "trainer/plan/saved_plan.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

// Checks that a profile has the rates that a plan for a device with memory of its own needs.
void require_rates_of_device(const MachineProfile& machine, const RunOptions& options) {
  const MemoryOptions& memory = options.memory;
  const std::string whose = memory.profile.empty() ? std::string("the profile of this machine")
                                                   : fmt::format("--profile {}", shown_name(memory.profile));
  const auto needs = [&](double value, std::string_view key) {
    if (value > 0) return;
    throw InputError(fmt::format("{}: has no {}, which a plan for a device of its own needs", whose, key),
                     options.gpu ? "Measure the GPU: spillway probe --device cuda" : "");
  };
  for (const Tier tier : kAll<Tier>) {
    if (in_memory(tier)) needs(static_cast<double>(machine.tier_bytes[tier]), memory_key(tier));
  }
  for (const LaneRate& rate : kLaneRates) {
    if (is_copy(rate.lane)) needs(machine.*rate.bytes, name_of_rate(rate.bytes));
  }
  if (options.parallel.ranks > 1 && !options.gpu) needs(machine.network_bytes, name_of_rate(&MachineProfile::network_bytes));
}

// A run must be on this machine; a plan may be for another one.
void refuse_other_devices(const MachineProfile& machine, const RunOptions& options, Where where) {
  const MemoryOptions& memory = options.memory;
  if (options.gpu) return require_rates_of_device(machine, options);
  if (!has_devices(machine)) {
    if (memory.device == DeviceChoice::cuda)
      throw InputError(fmt::format("--device: found cuda with the profile of {}, allowed: cpu, cpu-apart, as it says of no GPU",
                                   shown_name(machine.name)));
    return refuse_what_needs_a_device(memory);
  }
  if (where == Where::here) {
    throw InputError(fmt::format("--profile {}: found a machine with devices of its own ({}), allowed: one whose device is the "
                                 "CPU, as this run's is",
                                 shown_name(memory.profile), shown_name(machine.name)),
                     "`spillway plan` plans for it; a run takes the profile that `spillway probe --format json` wrote here.");
  }
  if (memory.device == DeviceChoice::cpu || memory.device == DeviceChoice::cpu_apart) {
    throw InputError(fmt::format("--device: found {} with the profile of {}, allowed: cuda, the device that it is of",
                                 memory.device == DeviceChoice::cpu ? "cpu" : "cpu-apart", shown_name(machine.name)));
  }
  if (options.parallel.ranks > std::max(machine.devices, 1)) {
    throw InputError(fmt::format("--ranks: found {} on {} with {}, allowed: at most one a device", options.parallel.ranks,
                                 shown_name(machine.name), counted(std::max(machine.devices, 1), "device")));
  }
  require_rates_of_device(machine, options);
}

// Adds the rates of copies between two mappings of the same memory, by a core that otherwise computes.
void add_copies(MachineProfile& machine) {
  constexpr double of_memory = 0.25;  // assumed if the profile does not say: reads and writes, on one thread
  for (const LaneRate& rate : kLaneRates) {
    if (is_copy(rate.lane)) machine.*rate.bytes = machine.copy_bytes > 0 ? machine.copy_bytes : of_memory * machine.memory_bytes;
  }
  machine.compute_beside_copy = 1 - 1.0 / std::max(2, machine.threads);
}

// The share of one rank: ranks of a host share the host's rates. If the profile has no rate of the network, one is assumed.
MachineProfile machine_of_rank(MachineProfile machine, const ParallelOptions& parallel) {
  const int ranks = static_cast<int>(parallel.ranks_here());
  if (ranks == 1) {
    constexpr double kEthernet = 1.25e9;  // ten gigabits a second between hosts of one rank each
    if (parallel.ranks > 1 && machine.network_bytes == 0) machine.network_bytes = kEthernet;
    return machine;
  }
  const bool has_own_device = has_devices(machine);
  for (const MachineRate& rate : kMachineRates) {
    const bool is_shared = rate.of == RateOf::host || rate.of == RateOf::drive || (rate.of == RateOf::device && !has_own_device);
    if (is_shared) machine.*rate.rate /= ranks;
  }
  if (has_own_device) {
    // Bytes of other GPUs come through the host, as between GPUs that cannot reach each other.
    if (machine.network_bytes == 0) machine.network_bytes = std::min(machine.upload_bytes, machine.download_bytes) / 2;
    return machine;
  }
  // Ranks communicate through the host's memory, which they read and write, by a thread each besides those that compute.
  if (machine.network_bytes == 0) machine.network_bytes = machine.memory_bytes / 2;
  const double threads = std::max(1, machine.threads / ranks), beside = threads / (threads + 1);
  machine.compute_beside_network = machine.update_beside_network = beside;
  machine.network_beside_compute = machine.network_beside_update = beside;
  return machine;
}

}  // namespace

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
  run.machine = machine_of_rank(as_seen(run.measured), options.parallel);
  if (is_apart(options)) add_copies(run.machine);
  run.request = plan_request(options, budgets_of_run(options, run.machine, where));
  if ((has_devices(run.measured) || has_own_memory(options)) && run.request.budgets[Tier::host] <= 0) {
    throw InputError(
        "--host-memory: found 0, allowed: more than 0, as what moves between NVMe and a device of its own goes "
        "through the host's memory");
  }
  if (run.request.budgets[Tier::nvme] > 0 && run.machine.nvme_read_bytes <= 0) {
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
  if (run.outcome.plan) run.request.sharding = run.outcome.plan->choices.sharding;
  if (!run.outcome.refusal.empty()) {
    if (run.request.budgets[Tier::nvme] == 0 && !options.memory.nvme.empty()) {
      throw BudgetError(fmt::format("--nvme {}: there is no room for a block of state", options.memory.nvme.front().path),
                        "Free space on that disk, or name a directory on another.");
    }
    throw InputError(run.outcome.refusal);
  }
  run.durability = durability_of(options, run.request, run.outcome,
                                 run.outcome.plan ? model.of(*run.outcome.plan).graph : model.tiled().graph, run.machine);
  return run;
}

}  // namespace spillway
