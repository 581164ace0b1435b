// The messages of processes that have not met yet (rendezvous.h). They come from whoever has connected, so they
// may be hostile: what is none of them is an IoError, and nothing is allocated beyond the bytes that came. Not here: the sockets.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "collectives/message.h"

namespace spillway {

using AgreedFlags = std::vector<std::pair<std::string, std::string>>;  // "--lr", "1e-5"

// A rank other than 0 says this to rank 0.
struct Hello {
  int rank = 1, ranks = 2;
  int port = 1;  // on which it listens
  AgreedFlags agreed;
};
Message message_of(const Hello& hello);
// Throws IoError unless the message is of this protocol, with a rank above 0 and a port from 1 to 65535.
Hello hello_in(Message& message);
// Why a rank does not belong to a run of these flags: the first on which it differs. Empty: it does.
std::string disagreement(const AgreedFlags& of_rank_0, int rank, const AgreedFlags& of_rank);
void put_flags(Message& message, const AgreedFlags& flags);
AgreedFlags get_flags(Message& message);

// Rank 0 tells this to every rank: where the others listen, and a number that a stranger does not know.
struct RankAddress {
  std::string host;
  int port = 0;
};
struct Roster {
  std::uint64_t token = 0;
  std::vector<RankAddress> places;  // [ranks]
  std::string refusal;              // why there is no start; empty: there is one
};
Message message_of(const Roster& roster);
Roster roster_in(Message& message, int ranks);

// Who connects to a rank says this first.
struct Caller {
  std::uint64_t token = 0;
  int rank = 0, channel = 0;
};
Message message_of(const Caller& caller);
Caller caller_in(Message& message);

}  // namespace spillway
