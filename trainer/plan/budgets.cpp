#include "trainer/plan/budgets.h"

#include <fmt/core.h>

#include <algorithm>

#include "memory/error.h"
#include "nvme/store.h"
#include "trainer/host/host.h"
#include "trainer/machine/nvme_directories.h"
#include "trainer/machine/profile_file.h"

namespace spillway {
namespace {

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

Budgets budgets_for(const RunOptions& options, Where where) {
  Budgets budgets;
  const Bytes margin = kProcessOverhead + 256 * kMiB;
  const Bytes available = std::max<Bytes>(0, available_memory() - margin);
  budgets.device = options.memory.device_memory.value_or(available);
  const auto directories = store_directories(options.memory.nvme);
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

}  // namespace spillway
