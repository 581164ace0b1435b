// The table of the module spillway_mpi.so: the few calls of MPI that a transport needs, in plain types. So the program starts
// where no MPI is installed, and knows nothing of an implementation's handles. Not here: who opens it (mpi_library.h).
//
// Calls come from one thread at a time. Each returns null, or what went wrong; the words are valid until the next call.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct SpillwayMpiMessage {
  int rank;         // the other one
  bool is_sent;     // by this rank; else received
  std::byte* data;  // read only where it is sent
  std::uint64_t bytes;
};

struct SpillwayMpiTable {
  std::uint32_t version;     // kMpiTableVersion of the headers by which it was compiled
  const char* (*library)();  // "Open MPI v4.1.4"

  const char* (*start)(int* rank, int* ranks);      // MPI_Init_thread: for the whole process, once
  const char* (*broadcast)(void* data, int bytes);  // from rank 0
  // All messages of one call are under way together; is_complete says when all are done. At most one of each kind between two
  // ranks. The data stays where it is until then, or for good.
  const char* (*begin)(const SpillwayMpiMessage* messages, std::size_t count);
  const char* (*test)(bool* is_complete);
  const char* (*finish)();  // MPI_Finalize: all ranks come to it
};

// The one name that the module exports.
const SpillwayMpiTable* spillway_mpi_table();
}

namespace spillway {

inline constexpr std::uint32_t kMpiTableVersion = 1;

}  // namespace spillway
