#include "trainer/plan/budgets.h"

#include <fmt/core.h>

#include <algorithm>

#include "memory/base/error.h"
#include "nvme/store.h"
#include "trainer/host/host.h"
#include "trainer/machine/nvme_directories.h"
#include "trainer/machine/profile_file.h"

namespace spillway {
namespace {

// True for another machine with devices: its profile gives the memory. On this machine the free memory counts instead.
bool has_devices_elsewhere(const MachineProfile& machine, const RunOptions& options) {
  return has_devices(machine) && !has_own_memory(options);
}
bool has_own_devices(const MachineProfile& machine, const RunOptions& options) {
  return has_devices(machine) && !is_apart(options);
}

// Budgets on this machine's GPU: its free memory and the host's available memory, each less a margin. The GPU's is rounded down,
// so that a plan and the run after it get the same budget although they see slightly different free memory.
Budgets gpu_budgets(Budgets budgets, const RunOptions& options) {
  constexpr Bytes step = 256 * kMiB;
  const Bytes margin = std::max(512 * kMiB, options.gpu->total / 20),
              of_device = std::max<Bytes>(0, options.gpu->free - margin) / step * step, available = available_memory(),
              of_host = std::max<Bytes>(0, available - std::max(4 * kGiB, available / 10));
  budgets[Tier::device] = options.memory.budget[Tier::device].value_or(of_device);
  budgets[Tier::host] = options.memory.budget[Tier::host].value_or(of_host);
  return budgets;
}

// Ranks of one host share its memory and its directories; --device-memory is for each rank.
Budgets budgets_of_rank(Budgets budgets, const RunOptions& options, const MachineProfile& machine) {
  const std::int64_t ranks = options.parallel.ranks_here();
  for (const Tier tier : kAll<Tier>) {
    const bool is_each_ones = tier == Tier::device && (options.memory.budget[tier] || has_own_devices(machine, options));
    if (!is_each_ones) budgets[tier] /= ranks;
  }
  return budgets;
}

// Applies the memory size in a profile file: a plan for that machine uses it, a run never takes more than this machine has.
void take_memory_of(const MachineProfile& machine, const RunOptions& options, Where where, Bytes& budget) {
  const Bytes there = machine.tier_bytes[Tier::device];
  if (options.memory.budget[Tier::device] || there == 0 || has_own_memory(options) || has_devices(machine)) return;
  const Bytes share = there / options.parallel.ranks_here();
  budget = where == Where::here ? std::min(budget, share) : share;
}

// Budgets of a device on the CPU with memory of its own: half of the available memory stands for the device's, the other half for
// the host's.
Budgets apart_budgets(Budgets budgets, const RunOptions& options) {
  const By<Tier, std::optional<Bytes>>& given = options.memory.budget;
  const Bytes there = budgets[Tier::device], half = there / 2;
  const Bytes of_devices = given[Tier::device] ? *given[Tier::device] * options.parallel.ranks_here() : there - half;
  budgets[Tier::device] = std::max<Bytes>(0, there - given[Tier::host].value_or(half));
  budgets[Tier::host] = std::max<Bytes>(0, there - of_devices);
  for (const Tier tier : kAll<Tier>) {
    if (in_memory(tier)) budgets[tier] = given[tier].value_or(budgets[tier]);
  }
  return budgets;
}

}  // namespace

Budgets budgets_for(const RunOptions& options, Where where) {
  Budgets budgets;
  const Bytes margin = kProcessOverhead + 256 * kMiB;
  const Bytes available = std::max<Bytes>(0, available_memory() - margin);
  budgets[Tier::device] = options.memory.budget[Tier::device].value_or(available);
  const auto directories = store_directories(options.memory.nvme);
  const bool told = std::all_of(directories.begin(), directories.end(),
                                [](const StoreDirectory& directory) { return directory.cap_bytes > 0; });
  if (told && where == Where::anywhere) {
    for (const StoreDirectory& directory : directories) budgets[Tier::nvme] += directory.cap_bytes;
  } else if (!directories.empty()) {
    budgets[Tier::nvme] = store_capacity(directories);
  }
  return budgets;
}

Budgets budgets_of(const MachineProfile& machine, const RunOptions& options) {
  // Memory that the driver and libraries of a device take, and the operating system of its host.
  By<Tier, Bytes> margin;
  if (has_devices_elsewhere(machine, options)) margin = {{Tier::device, 512 * kMiB}, {Tier::host, kProcessOverhead + 4 * kGiB}};
  Budgets budgets;
  for (const Tier tier : kAll<Tier>) {
    if (tier != Tier::device && !has_devices_elsewhere(machine, options)) continue;
    budgets[tier] = options.memory.budget[tier].value_or(std::max<Bytes>(0, machine.tier_bytes[tier] - margin[tier]));
  }
  for (const NvmeDirectory& directory : options.memory.nvme) {
    if (!directory.size) {
      throw InputError(
          fmt::format("--nvme: found {} without a size, which for another machine cannot be looked up", directory.path),
          fmt::format("Give one: --nvme {}=SIZE", directory.path));
    }
    budgets[Tier::nvme] += *directory.size;
  }
  return budgets;
}

bool is_elsewhere(const RunOptions& options, const MachineProfile& machine) {
  return names_known_machine(options.memory.profile) || has_devices_elsewhere(machine, options);
}

Budgets budgets_of_run(const RunOptions& options, const MachineProfile& machine, Where where) {
  const bool elsewhere = is_elsewhere(options, machine);
  RunOptions asked = options;
  if (is_apart(options)) asked.memory.budget[Tier::device].reset();  // it is a part of the available memory
  Budgets budgets;
  if (options.memory.settled && where == Where::here) {
    budgets = options.memory.settled->bytes;
  } else {
    budgets = elsewhere ? budgets_of(machine, asked) : budgets_for(asked, where);
    if (is_apart(options)) budgets = apart_budgets(budgets, options);
    if (options.gpu && !elsewhere) budgets = gpu_budgets(budgets, options);
    budgets = budgets_of_rank(budgets, options, machine);
  }
  take_memory_of(machine, options, where, budgets[Tier::device]);
  return budgets;
}

}  // namespace spillway
