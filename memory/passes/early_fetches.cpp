#include <algorithm>
#include <numeric>

#include "memory/passes/grouped.h"
#include "memory/passes/moves.h"
#include "memory/passes/packing.h"

namespace spillway {
namespace {

// Of the device, what is taken at each task: what lies below, as the program shows, and what is packed apart.
std::vector<Bytes> taken_at(const Residencies& residencies, const Plan& plan, const TaskList& list, const Issued& without,
                            const Apartness& apartness) {
  Bytes base = 0;
  for (const Buffer& buffer : plan.resident) base += buffer.tier == Tier::device ? buffer.bytes * buffer.slots : 0;
  const std::vector<Bytes> below = ends_below(without.program, base);
  const std::size_t tasks = list.tasks.size();
  std::vector<Bytes> taken(tasks + 1, 0);
  for (const Residency& residency : residencies.all()) {
    if (!apartness.is_apart(residency)) continue;
    const Bytes bytes = staged_bytes(list.objects[static_cast<std::size_t>(residency.object)]);
    taken[static_cast<std::size_t>(residency.is_fetched() ? residency.fetch_at : residency.first.task)] += bytes;
    taken[static_cast<std::size_t>(residency.free_after) + 1] -= bytes;
  }
  std::partial_sum(taken.begin(), taken.end(), taken.begin());
  for (std::size_t task = 0; task < tasks; ++task) {
    const auto first = below.begin() + (task == 0 ? 0 : without.last_op_of[task - 1] + 1);
    taken[task] += *std::max_element(first, below.begin() + without.last_op_of[task] + 1);
  }
  return taken;
}

}  // namespace

// A fetch is moved past as many tasks as it is then alive in: all of them together take as long as tasks times buffers alive at
// once.
void fetch_early(Residencies& residencies, const Plan& plan, const TaskList& list, const Issued& without, Bytes early_room) {
  const Apartness apartness(list);
  std::vector<Residency>& all = residencies.all();
  std::vector<Bytes> taken = taken_at(residencies, plan, list, without, apartness);
  Grouped wanted(list.tasks.size(), [&](const auto& add) {
    for (int i = 0; i < std::ssize(all); ++i) {
      const Residency& residency = all[static_cast<std::size_t>(i)];
      if (residency.is_fetched() && residency.tier == Tier::device && !apartness.is_computed_with(residency.object))
        add(residency.first.task, i);
    }
  });
  int before = 0;
  for (int task = 0; task < std::ssize(list.tasks); ++task) {
    for (const int index : wanted.of(task)) {
      Residency& residency = all[static_cast<std::size_t>(index)];
      const Bytes bytes = staged_bytes(list.objects[static_cast<std::size_t>(residency.object)]);
      const int earliest = std::max(residency.earliest, before);
      const int wanted_at = residency.fetch_at;
      while (residency.fetch_at > earliest && taken[static_cast<std::size_t>(residency.fetch_at) - 1] + bytes <= early_room)
        taken[static_cast<std::size_t>(--residency.fetch_at)] += bytes;
      // At the beginning of a step the others may wait for the end of the step before, and these behind them.
      residency.is_early = residency.fetch_at == 0 || residency.fetch_at < wanted_at;
      before = std::max(before, residency.fetch_at);
    }
  }
}

}  // namespace spillway
