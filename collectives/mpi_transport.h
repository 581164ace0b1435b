// A transport whose bytes MPI carries. MPI says nothing of a rank that is gone or has given up, so connections over TCP lie
// beside it, which carry no bytes and whose ends are the sign. MPI is called by the thread that calls exchange() alone, which
// tests and sleeps. Not here: starting MPI (mpi_library.h).
#pragma once

#include <vector>

#include "collectives/mpi_library.h"
#include "collectives/tcp_transport.h"

namespace spillway {

class MpiTransport final : public Transport {
 public:
  // `beside`: the connections, of the same ranks; both must outlive this.
  MpiTransport(const MpiLibrary& library, TcpTransport& beside) : table_(library.table()), beside_(beside) {}

  int rank() const override { return beside_.rank(); }
  int ranks() const override { return beside_.ranks(); }
  void exchange(std::span<const Send> sends, std::span<const Receive> receives) override;
  void abort(const std::string& reason) noexcept override { beside_.abort(reason); }

 private:
  void check(const char* error);

  const SpillwayMpiTable& table_;
  TcpTransport& beside_;
  std::vector<SpillwayMpiMessage> messages_;  // of the call under way; a member so that no call allocates
};

}  // namespace spillway
