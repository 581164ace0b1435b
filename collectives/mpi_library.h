// MPI as this process has it: the module spillway_mpi.so, opened from the program's own folder when it is asked for.
// Not here: bytes between ranks (mpi_transport.h).
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "collectives/mpi_table.h"

namespace spillway {

// MPI, started; once in a process. Calls come from one thread at a time.
class MpiLibrary {
 public:
  // `rank`, `ranks`: as the launcher `by` says. InputError where there is no module, or no MPI for it, or where it is another MPI
  // than the launcher's, which then knows of one rank alone.
  MpiLibrary(const std::string& by, int rank, int ranks);

  const SpillwayMpiTable& table() const { return *table_; }
  // Rank 0's text on all ranks, which all call this.
  std::string broadcast(const std::string& text);
  // All ranks end MPI. Not after an abort: it would wait for ranks that are gone.
  void finish();

 private:
  const SpillwayMpiTable* table_;
};

}  // namespace spillway
