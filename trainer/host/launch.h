// The launcher that started this process as one of several ranks, as its environment tells: torchrun, mpirun (Open MPI, MPICH) or
// Slurm. Not here: how ranks meet (collectives/rendezvous.h).
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace spillway {

struct Launch {
  std::string by;  // "torchrun"
  int rank = 0, ranks = 1;
  int local_rank = 0, local_ranks = 1;  // among those of this host
  std::string address = "127.0.0.1";    // of rank 0; empty: nothing says it, and ranks are on several hosts
  int port = 0;                         // on which rank 0 listens
  bool is_one_host() const { return local_ranks == ranks; }
};

// The value of a variable of the environment; null: it is not set.
using Environment = std::function<const char*(const char* name)>;

// Nothing where no launcher started this process, or started it alone. InputError where what it says cannot be.
std::optional<Launch> launch_in(const Environment& environment);

}  // namespace spillway
