#include "collectives/mpi_library.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "memory/base/error.h"

namespace spillway {
namespace {

constexpr const char* kHelp =
    "Install MPI (Debian: libopenmpi-dev and openmpi-bin), build again, and keep spillway_mpi.so beside the program; or take "
    "--collectives tcp, which needs no library.";

const SpillwayMpiTable* opened() {
  std::error_code unknown;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", unknown).parent_path();
  const std::string path = (folder / "spillway_mpi.so").string();
  if (!std::filesystem::exists(path, unknown))
    throw InputError(fmt::format("--collectives mpi: there is no {}, so this build has no MPI", path), kHelp);
  // Plugins of Open MPI look for its symbols among those of the whole program.
  void* const module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (module == nullptr) throw InputError(fmt::format("--collectives mpi: {} cannot be opened: {}", path, ::dlerror()), kHelp);
  const auto table_of = reinterpret_cast<decltype(&spillway_mpi_table)>(::dlsym(module, "spillway_mpi_table"));
  const SpillwayMpiTable* const table = table_of == nullptr ? nullptr : table_of();
  if (table == nullptr || table->version != kMpiTableVersion)
    throw InputError(fmt::format("--collectives mpi: {} is of another version of Spillway", path), kHelp);
  return table;
}

void check(const char* error) {
  if (error != nullptr) throw IoError(fmt::format("MPI failed: {}", error));
}

}  // namespace

MpiLibrary::MpiLibrary(const std::string& by, int rank, int ranks) : table_(opened()) {
  int own_rank = 0, own_ranks = 0;
  check(table_->start(&own_rank, &own_ranks));
  if (own_rank == rank && own_ranks == ranks) return;
  throw InputError(
      fmt::format("--collectives mpi: {} says that this is rank {} of {}, and {} says {} of {}", by, rank, ranks,
                  table_->library(), own_rank, own_ranks),
      fmt::format("Start the ranks by the mpirun of {}, or build with the launcher's MPI; or take --collectives tcp.",
                  table_->library()));
}

std::string MpiLibrary::broadcast(const std::string& text) {
  std::array<char, 1024> bytes{};
  SPILLWAY_CHECK(text.size() < bytes.size(), "{} bytes are too long to be broadcast", text.size());
  std::ranges::copy(text, bytes.begin());
  check(table_->broadcast(bytes.data(), static_cast<int>(bytes.size())));
  return {bytes.data(), std::find(bytes.begin(), bytes.end(), '\0')};
}

void MpiLibrary::finish() { check(table_->finish()); }

}  // namespace spillway
