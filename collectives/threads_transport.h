// Ranks that are threads of one process: a receiver copies from the sender's memory, or reads it where it is. With a GPU each
// these are copies between devices, which the driver carries through the host where they cannot reach each other.
// Not here: threads (offload/lane_runner.h has one for each rank).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/rank_memory.h"
#include "collectives/transport.h"

namespace spillway {

class ThreadTeam {
 public:
  // `channels`: of each rank; calls of one do not wait for those of another, and abort() ends all.
  explicit ThreadTeam(int ranks, int channels = 1);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  // Returns the transport of one rank; this object must outlive all calls. `memory`, which must too, copies what it receives;
  // null: threads of the host do.
  Transport& of(int rank, int channel = 0, RankMemory* memory = nullptr);

 private:
  class Seat;
  struct Shared {
    std::vector<std::unique_ptr<Seat>> seats;  // [channels, ranks]
    std::atomic<bool> is_aborted{false};
    std::mutex reason_mutex;
    std::string reason;
  };
  const int ranks_;
  Shared shared_;
};

}  // namespace spillway
