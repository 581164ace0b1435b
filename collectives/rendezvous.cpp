#include "collectives/rendezvous.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <random>

#include "collectives/message.h"
#include "memory/base/error.h"

namespace spillway {
namespace {

constexpr std::uint32_t kProtocol = 1;
constexpr Bytes kLongest = kMiB;              // of a message of a start
constexpr std::chrono::seconds kPatience(5);  // for a client that has connected to say what it has to say

using Clock = std::chrono::steady_clock;

std::string name_of(int rank, const std::string& host) { return fmt::format("rank {} ({})", rank, host); }

struct Place {
  std::string host;
  int port = 0;
};

// Rank 0 tells this to every rank: where the others listen, and a number that a stranger does not know.
struct Roster {
  std::uint64_t token = 0;
  std::vector<Place> places;  // [ranks]
  std::string refusal;        // why there is no start; empty: there is one
};

Message encoded(const Roster& roster) {
  Message message;
  message.put_text(roster.refusal);
  message.put(roster.token);
  for (const Place& place : roster.places) message.put_text(place.host), message.put(std::int32_t{place.port});
  return message;
}

Roster decoded(Message message, int ranks) {
  Roster roster;
  roster.refusal = message.get_text();
  roster.token = message.get<std::uint64_t>();
  for (int rank = 0; rank < ranks && roster.refusal.empty(); ++rank) {
    std::string host = message.get_text();
    roster.places.push_back({std::move(host), message.get<std::int32_t>()});
  }
  return roster;
}

// A rank tells rank 0 this about itself.
Message hello_of(const RendezvousOptions& options, int port) {
  Message message;
  message.put(kProtocol);
  message.put(std::int32_t{options.rank});
  message.put(std::int32_t{options.ranks});
  message.put(std::int32_t{port});
  message.put(static_cast<std::uint32_t>(options.agreed.size()));
  for (const auto& [name, value] : options.agreed) message.put_text(name), message.put_text(value);
  return message;
}

// Why a rank does not belong to this run; empty: it does.
std::string disagreement(const RendezvousOptions& options, int rank, Message& message) {
  const auto count = message.get<std::uint32_t>();
  if (count != options.agreed.size()) return fmt::format("rank {} has another version of Spillway than rank 0", rank);
  for (const auto& [name, value] : options.agreed) {
    const std::string theirs_name = message.get_text(), theirs = message.get_text();
    if (theirs_name != name) return fmt::format("rank {} has another version of Spillway than rank 0", rank);
    if (theirs != value)
      return fmt::format("{}: rank {} has {}, and rank 0 has {}", name, rank, theirs.empty() ? "none" : theirs,
                         value.empty() ? "none" : value);
  }
  return {};
}

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
      if (socket.is_open()) send_message(socket, encoded(roster_), Clock::now() + kPatience);
    }
    return roster_;
  }

 private:
  void take(Socket client) {
    Message message = receive_message(client, kLongest, std::min(deadline_, Clock::now() + kPatience));
    if (message.get<std::uint32_t>() != kProtocol) throw IoError("another protocol");
    const int rank = message.get<std::int32_t>(), ranks = message.get<std::int32_t>(), port = message.get<std::int32_t>();
    if (rank < 1 || port < 1 || port > 65535) throw IoError("no rank");
    if (ranks != options_.ranks) {
      refuse(fmt::format("rank {} is one of {}, and rank 0 of {}", rank, ranks, options_.ranks), client);
    } else if (rank >= ranks || waiting_[static_cast<std::size_t>(rank)].is_open()) {
      refuse(fmt::format("rank {} came twice", rank), client);
    } else if (std::string why = disagreement(options_, rank, message); !why.empty()) {
      refuse(std::move(why), client);
    } else {
      const auto at = static_cast<std::size_t>(rank);
      roster_.places[at] = {client.peer(), port};
      waiting_[at] = std::move(client);
      ++come_;
    }
  }
  void refuse(std::string why, Socket& client) {
    roster_.refusal = std::move(why);
    send_message(client, encoded(roster_), Clock::now() + kPatience);
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
      const Place& place = roster.places[static_cast<std::size_t>(other)];
      Socket made = connect_to(place.host, place.port, deadline);
      Message message;
      message.put(roster.token), message.put(std::int32_t{options.rank}), message.put(std::int32_t{channel});
      send_message(made, message, deadline);
      made.set_peer(name_of(other, place.host));
      mesh[static_cast<std::size_t>(channel)][static_cast<std::size_t>(other)] = std::move(made);
    }
  }
  for (int left = options.channels * (options.ranks - 1 - options.rank); left > 0;) {
    Socket client = accept_by(listening, deadline);
    if (!client.is_open()) throw IoError("other ranks did not connect in time");
    try {
      Message message = receive_message(client, kLongest, std::min(deadline, Clock::now() + kPatience));
      const auto token = message.get<std::uint64_t>();
      const int rank = message.get<std::int32_t>(), channel = message.get<std::int32_t>();
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
    send_message(first, hello_of(options, port_of(listening)), deadline);
    roster = decoded(receive_message(first, kLongest, deadline + 2 * kPatience), options.ranks);
    if (roster.refusal.empty()) roster.places.front().host = options.address;  // as this host knows it
  }
  if (!roster.refusal.empty())
    throw InputError(roster.refusal,
                     "All ranks of a run have the same flags, model and version; --rendezvous-timeout says how long "
                     "they wait for each other.");
  return connect_all(options, roster, listening, deadline + kPatience);
}

}  // namespace spillway
