#include "trainer/run/process_team.h"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <nlohmann/json.hpp>

#include "collectives/message.h"
#include "collectives/rendezvous.h"
#include "memory/base/error.h"
#include "offload/executor_options.h"
#include "trainer/host/end_when_late.h"
#include "trainer/options/resolve_options.h"
#include "trainer/run/team_messages.h"

namespace spillway {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kBeat(1), kSilence(30), kFarewell(2);
constexpr int kControl = kTeamChannels, kPulse = kControl + 1, kChannels = kPulse + 1;

// Each flag and its value: ranks that differ in one would compute another run.
std::vector<std::pair<std::string, std::string>> agreed_on(const RunOptions& options) {
  std::vector<std::pair<std::string, std::string>> agreed;
  const nlohmann::json flags = to_json(options);
  for (const auto& [name, value] : flags.items())
    agreed.emplace_back("--" + name, value.is_string() ? value.get<std::string>() : value.dump());
  return agreed;
}

// With MPI nobody need know where rank 0 listens: it takes a free port, or that of the flag, and tells the others. On several
// hosts they need an address that they can reach: MASTER_ADDR's, or the host's name. Returns the socket; not open on other ranks.
Socket tell_where_rank_0_is(MpiLibrary& mpi, int port, Launch& launch) {
  Socket listening;
  std::string words;
  if (launch.rank == 0) {
    if (launch.address.empty()) {
      char name[HOST_NAME_MAX + 1] = "";
      ::gethostname(name, sizeof name - 1);
      launch.address = name;
    }
    listening = listen_on(port);
    launch.port = port_of(listening);
    words = fmt::format("{} {}", launch.port, launch.address);
  }
  words = mpi.broadcast(words);
  const std::size_t space = words.find(' ');
  launch.port = std::stoi(words.substr(0, space));
  launch.address = words.substr(space + 1);
  return listening;
}

// MPI's start waits for all ranks, and cannot be broken off.
Error mpi_is_late(const ParallelOptions& parallel) {
  return InputError(
      fmt::format("MPI did not start within {} s on rank {}: some of the {} ranks that {} started did not come",
                  parallel.rendezvous_timeout, parallel.launch->rank, parallel.ranks, parallel.launch->by),
      "Each must come to train with --collectives mpi; --rendezvous-timeout says how long they wait for each other.");
}

}  // namespace

ProcessTeam::ProcessTeam(const RunOptions& options) : rank_(options.parallel.launch->rank) {
  Launch launch = *options.parallel.launch;
  Socket listening;
  if (options.parallel.collectives == CollectivesChoice::mpi) {
    const EndWhenLate watch(std::chrono::seconds(options.parallel.rendezvous_timeout), mpi_is_late(options.parallel));
    mpi_.emplace(launch.by, launch.rank, launch.ranks);
    listening = tell_where_rank_0_is(*mpi_, static_cast<int>(options.parallel.rendezvous_port), launch);
  }
  std::vector<std::vector<Socket>> channels = meet({.rank = launch.rank,
                                                    .ranks = launch.ranks,
                                                    .address = launch.address,
                                                    .port = launch.port,
                                                    .channels = kChannels,
                                                    .agreed = agreed_on(options),
                                                    .timeout = std::chrono::seconds(options.parallel.rendezvous_timeout)},
                                                   std::move(listening));
  pulse_ = std::move(channels[kPulse]);
  control_ = std::move(channels[kControl]);
  channels.resize(kTeamChannels);
  transports_ = std::make_unique<TcpTeam>(rank_, std::move(channels));
  if (mpi_) network_ = std::make_unique<MpiTransport>(*mpi_, transports_->of(static_cast<int>(TeamChannel::network)));
  pulse_thread_ = std::jthread([this] { keep_pulse(); });
}

ProcessTeam::~ProcessTeam() { is_over_ = true; }

Transport& ProcessTeam::transport(TeamChannel channel) {
  if (network_ && channel == TeamChannel::network) return *network_;
  return transports_->of(static_cast<int>(channel));
}

void ProcessTeam::leave() {
  if (mpi_) mpi_->finish();
}

// A rank that is gone can neither be waited for nor asked.
void ProcessTeam::lose(std::size_t rank, const std::string& how) {
  const std::string reason = fmt::format("{} {}", pulse_[rank].peer(), how);
  {
    const std::lock_guard lock(lost_mutex_);
    if (lost_.empty()) lost_ = reason;
  }
  transports_->abort(reason);
  control_[rank].shut_down();
  pulse_[rank] = Socket();
}

// Rank 0 and each other say once a second that they live. A connection that ends is one that ended; silence may be a host that is
// gone.
void ProcessTeam::keep_pulse() {
  const std::size_t first = rank_ == 0 ? 1 : 0, end = rank_ == 0 ? pulse_.size() : 1;
  std::vector<Clock::time_point> heard(pulse_.size(), Clock::now());
  while (!is_over_) {
    const Clock::time_point beat = Clock::now() + kBeat;
    for (std::size_t rank = first; rank < end; ++rank) {
      if (!pulse_[rank].is_open()) continue;
      try {
        const std::byte alive[1]{};
        pulse_[rank].send(alive, Clock::now() + kSilence);
      } catch (const IoError&) {
        if (!is_over_) lose(rank, "has ended");
      }
    }
    while (!is_over_ && Clock::now() < beat) {
      std::vector<pollfd> wanted;
      for (std::size_t rank = first; rank < end; ++rank) wanted.push_back({pulse_[rank].fd(), POLLIN, 0});
      constexpr int glance_ms = 100;  // and then whether all is over
      ::poll(wanted.data(), wanted.size(), glance_ms);
      for (std::size_t rank = first; rank < end && !is_over_; ++rank) {
        if (!pulse_[rank].is_open()) continue;
        if (wanted[rank - first].revents == 0) {
          if (Clock::now() - heard[rank] > kSilence) lose(rank, fmt::format("has not answered for {} s", kSilence.count()));
          continue;
        }
        try {
          std::byte alive[1];
          pulse_[rank].receive(alive, Clock::now() + kBeat);
          heard[rank] = Clock::now();
        } catch (const IoError&) {
          if (!is_over_) lose(rank, "has ended");
        }
      }
    }
  }
}

void ProcessTeam::tell_end(int exit_code, bool is_good) noexcept {
  is_over_ = true;
  for (Socket& control : control_) {
    if (!control.is_open()) continue;
    try {
      Message message;
      message.put(TeamQuestion::end);
      message.put(std::int32_t{exit_code}), message.put(is_good);
      send_message(control, message, Clock::now() + kFarewell);
    } catch (const std::exception&) {
      // It has ended before.
    }
  }
}

int ProcessTeam::lead(const std::function<int()>& body) {
  try {
    const int exit_code = body();
    tell_end(exit_code, true);
    leave();
    return exit_code;
  } catch (const Error& error) {
    tell_end(error.exit_code(), false);
    const std::lock_guard lock(lost_mutex_);
    // What broke off is only what follows from it.
    if (!lost_.empty() && error.exit_code() == kExitIo) throw IoError(lost_, "The run goes on by --load from what it has kept.");
    throw;
  } catch (...) {
    tell_end(kExitBug, false);
    throw;
  }
}

}  // namespace spillway
