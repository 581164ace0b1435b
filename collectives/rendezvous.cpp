#include "collectives/rendezvous.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <random>

#include "collectives/hello.h"
#include "collectives/message.h"
#include "memory/base/error.h"

namespace spillway {
namespace {

constexpr Bytes kLongest = kMiB;              // of a message of a start
constexpr std::chrono::seconds kPatience(5);  // for a client that has connected to say what it has to say

using Clock = std::chrono::steady_clock;

std::string name_of(int rank, const std::string& host) { return fmt::format("rank {} ({})", rank, host); }

class Gathering {
 public:
  Gathering(const RendezvousOptions& options, Clock::time_point deadline)
      : options_(options), deadline_(deadline), waiting_(static_cast<std::size_t>(options.ranks)) {
    roster_.places.resize(static_cast<std::size_t>(options.ranks));
  }

  // Rank 0's side: all that come in time, and what they are told.
  Roster gather(Socket listening, int own_port) {
    if (!listening.is_open()) listening = listen_on(options_.port);
    roster_.places.front() = {options_.address, own_port};
    std::random_device random;
    roster_.token = std::uint64_t{random()} << 32 | random();
    while (roster_.refusal.empty() && come_ < options_.ranks - 1) {
      Socket client = accept_by(listening, deadline_);
      if (!client.is_open()) {
        refuse_missing();
        break;
      }
      try {
        take(std::move(client));
      } catch (const IoError&) {
        // No rank: a scan of ports, or a client that was gone.
      }
    }
    for (Socket& socket : waiting_) {
      if (socket.is_open()) send_message(socket, message_of(roster_), Clock::now() + kPatience);
    }
    return roster_;
  }

 private:
  void take(Socket client) {
    Message message = receive_message(client, kLongest, std::min(deadline_, Clock::now() + kPatience));
    const Hello hello = hello_in(message);
    const int rank = hello.rank;
    if (hello.ranks != options_.ranks) {
      refuse(fmt::format("rank {} is one of {}, and rank 0 of {}", rank, hello.ranks, options_.ranks), client);
    } else if (rank >= options_.ranks || waiting_[static_cast<std::size_t>(rank)].is_open()) {
      refuse(fmt::format("rank {} came twice", rank), client);
    } else if (std::string why = disagreement(options_.agreed, rank, hello.agreed); !why.empty()) {
      refuse(std::move(why), client);
    } else {
      const auto at = static_cast<std::size_t>(rank);
      roster_.places[at] = {client.peer(), hello.port};
      waiting_[at] = std::move(client);
      ++come_;
    }
  }
  void refuse(std::string why, Socket& client) {
    roster_.refusal = std::move(why);
    send_message(client, message_of(roster_), Clock::now() + kPatience);
  }
  void refuse_missing() {
    std::vector<int> missing;
    for (int rank = 1; rank < options_.ranks; ++rank) {
      if (!waiting_[static_cast<std::size_t>(rank)].is_open()) missing.push_back(rank);
    }
    roster_.refusal = fmt::format("{} {} did not come within {} s", missing.size() == 1 ? "rank" : "ranks",
                                  fmt::join(missing, ", "), options_.timeout.count());
  }

  const RendezvousOptions& options_;
  const Clock::time_point deadline_;
  std::vector<Socket> waiting_;  // [ranks] those that have come, until they are told
  Roster roster_;
  int come_ = 0;
};

// Each rank connects to those before it, and says the token, who it is and for which channel.
std::vector<std::vector<Socket>> connect_all(const RendezvousOptions& options, const Roster& roster, const Socket& listening,
                                             Clock::time_point deadline) {
  std::vector<std::vector<Socket>> mesh(static_cast<std::size_t>(options.channels));
  for (auto& channel : mesh) channel.resize(static_cast<std::size_t>(options.ranks));
  for (int channel = 0; channel < options.channels; ++channel) {
    for (int other = 0; other < options.rank; ++other) {
      const RankAddress& address = roster.places[static_cast<std::size_t>(other)];
      Socket made = connect_to(address.host, address.port, deadline);
      send_message(made, message_of(Caller{.token = roster.token, .rank = options.rank, .channel = channel}), deadline);
      made.set_peer(name_of(other, address.host));
      mesh[static_cast<std::size_t>(channel)][static_cast<std::size_t>(other)] = std::move(made);
    }
  }
  for (int left = options.channels * (options.ranks - 1 - options.rank); left > 0;) {
    Socket client = accept_by(listening, deadline);
    if (!client.is_open()) throw IoError("other ranks did not connect in time");
    try {
      Message message = receive_message(client, kLongest, std::min(deadline, Clock::now() + kPatience));
      const auto [token, rank, channel] = caller_in(message);
      if (token != roster.token || rank <= options.rank || rank >= options.ranks || channel < 0 || channel >= options.channels)
        continue;
      Socket& place = mesh[static_cast<std::size_t>(channel)][static_cast<std::size_t>(rank)];
      if (place.is_open()) continue;
      client.set_peer(name_of(rank, roster.places[static_cast<std::size_t>(rank)].host));
      place = std::move(client);
      --left;
    } catch (const IoError&) {
      // A stranger.
    }
  }
  return mesh;
}

}  // namespace

std::vector<std::vector<Socket>> meet(const RendezvousOptions& options, Socket first_listening) {
  const Clock::time_point deadline = Clock::now() + options.timeout;
  const Socket listening = listen_on(0);
  Roster roster;
  if (options.rank == 0) {
    roster = Gathering(options, deadline).gather(std::move(first_listening), port_of(listening));
  } else {
    Socket first = connect_to(options.address, options.port, deadline);
    first.set_peer(name_of(0, options.address));
    const Hello hello{.rank = options.rank, .ranks = options.ranks, .port = port_of(listening), .agreed = options.agreed};
    send_message(first, message_of(hello), deadline);
    Message told = receive_message(first, kLongest, deadline + 2 * kPatience);
    roster = roster_in(told, options.ranks);
    if (roster.refusal.empty()) roster.places.front().host = options.address;  // as this host knows it
  }
  if (!roster.refusal.empty())
    throw InputError(roster.refusal,
                     "All ranks of a run have the same flags, model and version; --rendezvous-timeout says how long "
                     "they wait for each other.");
  return connect_all(options, roster, listening, deadline + kPatience);
}

}  // namespace spillway
