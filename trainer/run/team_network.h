// The transport by which a process of several sends gradients and weights: NCCL where each has a GPU, else MPI or the team's
// connections.
// Not here: the connections (process_team.h), who decides which (trainer/options/launched.h).
#pragma once

#include <memory>
#include <optional>

#include "collectives/nccl_library.h"
#include "collectives/transport.h"
#include "offload/device.h"
#include "trainer/run/process_team.h"

namespace spillway {

// Rank 0's, for all to join by. InputError where there is no NCCL.
NcclUniqueId new_nccl_id();

class TeamNetwork {
 public:
  // The device and the team must outlive it. `nccl`: where ranks talk by that.
  TeamNetwork(Device& device, ProcessTeam& team, const std::optional<NcclUniqueId>& nccl);
  Transport& transport() const { return *transport_; }

 private:
  std::unique_ptr<Transport> own_;
  Transport* transport_;
};

}  // namespace spillway
