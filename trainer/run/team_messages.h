// What rank 0 tells the other processes of a run: how a rank begins. Not here: the connection (process_team.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/message.h"
#include "collectives/nccl_library.h"
#include "trainer/options/options.h"
#include "trainer/run/rank_store.h"

namespace spillway {

// What rank 0 asks of the others besides what the executor asks (offload/remote_rank.h).
enum class TeamQuestion : std::uint32_t { begin = 1000, look, keep_store, discard_store, end };

struct BeginOrder {
  std::string plan;  // plan.json
  std::optional<DurableSteps> durable;
  std::vector<std::uint64_t> orphans;  // in the rank's directories
  std::optional<NcclUniqueId> nccl;    // where ranks talk by NCCL
};
Message message_of(const BeginOrder& order);
// `question`: behind the word that says what it is.
BeginOrder begin_order_in(Message& question);

// How these options add gradients over ranks.
SumBy sum_by(const ParallelOptions& parallel);

}  // namespace spillway
