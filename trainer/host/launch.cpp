#include "trainer/host/launch.h"

#include <fmt/core.h>

#include <charconv>
#include <cstring>
#include <string_view>

#include "memory/base/error.h"

namespace spillway {
namespace {

constexpr int kMostRanks = 1 << 16, kDefaultPort = 29501;

// The names by which a launcher says the same things.
struct Names {
  const char *by, *rank, *ranks, *local_rank, *local_ranks;
};
constexpr Names kLaunchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
};

int number_in(const Environment& environment, const char* name, int least, int most) {
  const char* const text = environment(name);
  int value = 0;
  const char* const end = text + std::strlen(text);
  const auto parsed = std::from_chars(text, end, value);
  // Slurm says "2(x3)" for two tasks on each of three hosts.
  const bool is_whole = parsed.ec == std::errc() && (parsed.ptr == end || *parsed.ptr == '(');
  if (!is_whole || value < least || value > most)
    throw InputError(fmt::format("{}: found \"{}\", allowed: {} to {}", name, text, least, most),
                     "A launcher sets it; unset it where none started this process.");
  return value;
}

void take_address(const Environment& environment, Launch& launch) {
  if (const char* const address = environment("MASTER_ADDR"); address != nullptr && *address != '\0') {
    launch.address = address;
  } else if (!launch.is_one_host()) {
    launch.address.clear();
  }
  launch.port = environment("MASTER_PORT") == nullptr ? kDefaultPort : number_in(environment, "MASTER_PORT", 1, 65534) + 1;
}

}  // namespace

std::optional<Launch> launch_in(const Environment& environment) {
  for (const Names& names : kLaunchers) {
    if (environment(names.rank) == nullptr || environment(names.ranks) == nullptr) continue;
    Launch launch{.by = names.by};
    launch.ranks = number_in(environment, names.ranks, 1, kMostRanks);
    launch.rank = number_in(environment, names.rank, 0, launch.ranks - 1);
    if (launch.ranks == 1) return std::nullopt;
    const bool says_local = environment(names.local_ranks) != nullptr;
    launch.local_ranks = says_local ? number_in(environment, names.local_ranks, 1, launch.ranks) : launch.ranks;
    if (environment(names.local_rank) != nullptr)
      launch.local_rank = number_in(environment, names.local_rank, 0, launch.ranks - 1);
    take_address(environment, launch);
    return launch;
  }
  return std::nullopt;
}

}  // namespace spillway
