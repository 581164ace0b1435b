#include "trainer/options/launched.h"

#include <fmt/core.h>

#include "memory/base/error.h"
#include "trainer/options/flag_choices.h"

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
  options.parallel.launch = launch;
  if (options.parallel.rendezvous_port > 0) options.parallel.launch->port = static_cast<int>(options.parallel.rendezvous_port);
  if (launch.is_one_host()) return;
  if (options.memory.durability == Durability::step) {
    throw InputError("--durability: found step with ranks on several hosts, allowed in this version: auto, checkpoint",
                     "Each host has its own --nvme, which rank 0 cannot read: keep the run by --save-interval N.");
  }
  options.memory.durability = Durability::checkpoint;
}

void check_collectives(const RunOptions& options) {
  const CollectivesChoice choice = options.parallel.collectives;
  const std::optional<Launch>& launch = options.parallel.launch;
  if (launch && launch->address.empty() && choice != CollectivesChoice::mpi) {
    throw InputError(fmt::format("MASTER_ADDR: not set, and {} started {} ranks on several hosts", launch->by, launch->ranks),
                     "Set it to the host of rank 0, as the other hosts know it; with --collectives mpi they need not be told.");
  }
  if (choice == CollectivesChoice::automatic || choice == CollectivesChoice::parameter_server) return;
  const auto refuse = [choice](const std::string& because, const char* allowed, const char* help) {
    throw InputError(
        fmt::format("--collectives: found {}, and {}, allowed: auto, {}, parameter-server", name_of(choice), because, allowed),
        help);
  };
  if (!launch) {
    if (choice != CollectivesChoice::threads)
      refuse("no launcher started this process as one of several", "threads",
             "Start the ranks by torchrun, mpirun or srun; or let --ranks N be threads.");
    return;
  }
  const bool is_theirs =
      options.gpu ? choice == CollectivesChoice::nccl : choice == CollectivesChoice::tcp || choice == CollectivesChoice::mpi;
  if (is_theirs) return;
  refuse(fmt::format("{} started {} processes{}", launch->by, launch->ranks, options.gpu ? " with a GPU each" : " on CPUs"),
         options.gpu ? "nccl" : "tcp, mpi", "");
}

}  // namespace spillway
