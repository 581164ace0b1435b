// How ranks that are processes find each other: rank 0 listens on a port that all know, the others come to it and say who they
// are, and each then has a connection to every other for every channel. A trusted network is assumed: nothing is encrypted.
// Whoever says something else is dropped, and the start goes on without them. Not here: who started the processes
// (trainer/host/launch.h), what they say first (hello.h), what goes over the connections.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/hello.h"
#include "collectives/socket.h"

namespace spillway {

struct RendezvousOptions {
  int rank = 0, ranks = 1;
  std::string address = "127.0.0.1";  // of rank 0
  int port = 0;
  int channels = 1;
  // All ranks must agree on these: "--lr", "1e-5". The error names the first on which a rank differs.
  AgreedFlags agreed;
  std::chrono::seconds timeout{300};
};

// `listening`: where rank 0 listens, if it does so already; the port of the options says where else.
// [channels][ranks] connections, each named "rank 1 (10.0.0.2)"; that of this rank to itself is not open. InputError where ranks
// disagree, where one comes twice, and where some have not come in time; on all ranks, in the same words, but for those that were
// not there.
std::vector<std::vector<Socket>> meet(const RendezvousOptions& options, Socket listening = {});

}  // namespace spillway
