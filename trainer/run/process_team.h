// The ranks of a run that are processes, as one of them has them: connections for collectives, a control connection between rank
// 0 and each other, by which rank 0 decides everything, and a pulse, by which each knows that the other lives. Not here:
// launchers (trainer/host/launch.h), what the others do (follower.h).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/mpi_transport.h"
#include "collectives/socket.h"
#include "collectives/tcp_transport.h"
#include "offload/executor_options.h"
#include "trainer/options/options.h"

namespace spillway {

class ProcessTeam {
 public:
  // Meets the other ranks. InputError where they disagree on a flag, or do not come.
  explicit ProcessTeam(const RunOptions& options);
  ~ProcessTeam();
  ProcessTeam(const ProcessTeam&) = delete;
  ProcessTeam& operator=(const ProcessTeam&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return static_cast<int>(control_.size()); }
  Transport& transport(TeamChannel channel);
  TcpTeam& connections() { return *transports_; }  // whose abort ends all
  Socket& control(int rank) { return control_.at(static_cast<std::size_t>(rank)); }
  // "rank 1 (10.0.0.2)", of another than this one.
  const std::string& name_of(int rank) const { return control_.at(static_cast<std::size_t>(rank)).peer(); }

  // For rank 0: runs `body` and tells the others how it ended; returns what it returns, and passes on its exceptions.
  int lead(const std::function<int()>& body);
  // For the others, where rank 0 says that the run has ended as it should: all ranks leave together.
  void leave();

 private:
  void keep_pulse();
  void lose(std::size_t rank, const std::string& how);
  void tell_end(int exit_code, bool is_good) noexcept;

  const int rank_;
  std::optional<MpiLibrary> mpi_;  // where it carries the bytes of the network lane
  std::unique_ptr<TcpTeam> transports_;
  std::unique_ptr<MpiTransport> network_;  // null: one of the transports does
  std::vector<Socket> control_, pulse_;    // [ranks]
  std::atomic<bool> is_over_{false};
  std::mutex lost_mutex_;
  std::string lost_;           // which rank was lost first, and how; empty: none
  std::jthread pulse_thread_;  // last: it ends before what it uses
};

}  // namespace spillway
