#include "trainer/options/launched.h"

#include <fmt/core.h>

#include "memory/base/error.h"

namespace spillway {

void take_ranks_of(const Launch& launch, RawFlags& flags) {
  const std::string ranks = fmt::format("{}", launch.ranks);
  const auto typed = flags.given.find("ranks");
  if (typed != flags.given.end() && typed->second != std::vector<std::string>{ranks}) {
    throw InputError(fmt::format("--ranks: found {}, and {} started {} processes, each of which is a rank", typed->second.front(),
                                 launch.by, launch.ranks),
                     "Leave --ranks out, or start one process without a launcher.");
  }
  flags.given["ranks"] = {ranks};
}

void take_launch(const Launch& launch, RunOptions& options) {
  if (options.parallel.collectives == CollectivesChoice::threads)
    throw InputError(
        fmt::format("--collectives: found threads, and {} started {} processes, allowed: auto, tcp, parameter-server", launch.by,
                    launch.ranks));
  options.parallel.launch = launch;
  if (options.parallel.rendezvous_port > 0) options.parallel.launch->port = static_cast<int>(options.parallel.rendezvous_port);
  if (launch.is_one_host()) return;
  if (options.memory.durability == Durability::step) {
    throw InputError("--durability: found step with ranks on several hosts, allowed in this version: auto, checkpoint",
                     "Each host has its own --nvme, which rank 0 cannot read: keep the run by --save-interval N.");
  }
  options.memory.durability = Durability::checkpoint;
}

}  // namespace spillway
