#include "trainer/run/team_network.h"

#include "collectives/nccl_transport.h"
#include "memory/base/error.h"
#include "offload/executor_options.h"

namespace spillway {

NcclUniqueId new_nccl_id() {
  NcclUniqueId id;
  const NcclLibrary& library = nccl_library();
  if (const int result = library.get_unique_id(&id); result != NcclLibrary::kSuccess)
    throw IoError(fmt::format("ncclGetUniqueId: {}", library.get_error_string(result)));
  return id;
}

TeamNetwork::TeamNetwork(Device& device, ProcessTeam& team, const std::optional<NcclUniqueId>& nccl) {
  if (nccl)
    own_ =
        std::make_unique<NcclTransport>(nccl_library(), *nccl, team.rank(), team.ranks(), device.runtime(), team.connections());
  transport_ = own_ ? own_.get() : &team.transport(TeamChannel::network);
}

}  // namespace spillway
