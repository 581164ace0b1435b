#include "collectives/tcp_transport.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace spillway {

TcpTeam::TcpTeam(int rank, std::vector<std::vector<Socket>> channels) {
  for (std::vector<Socket>& peers : channels) channels_.push_back(std::make_unique<TcpTransport>(rank, std::move(peers), *this));
}
TcpTeam::~TcpTeam() = default;
TcpTransport& TcpTeam::of(int channel) { return *channels_.at(static_cast<std::size_t>(channel)); }

void TcpTeam::check() const {
  if (!is_aborted_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(reason_mutex_);
  throw AbortedError(reason_);
}

void TcpTeam::abort(const std::string& reason) noexcept {
  {
    const std::lock_guard lock(reason_mutex_);
    if (!is_aborted_.load(std::memory_order_relaxed)) reason_ = reason;
    is_aborted_.store(true, std::memory_order_release);
  }
  for (const auto& channel : channels_) channel->shut_down();
}

void TcpTransport::shut_down() const noexcept {
  for (const Socket& peer : peers_) peer.shut_down();
}

void TcpTransport::check_peers() const {
  check();
  for (const Socket& peer : peers_) {
    std::byte unexpected[1];
    if (!peer.is_open() ||
        (::recv(peer.fd(), unexpected, sizeof unexpected, MSG_DONTWAIT | MSG_PEEK) < 0 && (errno == EAGAIN || errno == EINTR)))
      continue;
    check();
    throw AbortedError(fmt::format("{} closed its connection", peer.peer()));
  }
}

void TcpTransport::exchange(std::span<const Send> sends, std::span<const Receive> receives) {
  team_.check();
  ++call_;
  outgoing_.clear(), incoming_.clear();
  for (const Send& send : sends) {
    const auto bytes = static_cast<std::uint64_t>(send.bytes);
    outgoing_.push_back({send.to, {kMagic, call_, bytes}, send.data, 0, sizeof(Header) + bytes});
  }
  for (const Receive& receive : receives)
    incoming_.push_back({receive.from,
                         {0, 0, static_cast<std::uint64_t>(receive.bytes)},
                         receive.data,
                         0,
                         sizeof(Header) + static_cast<std::size_t>(receive.bytes)});
  std::vector<pollfd> wanted;
  for (;;) {
    wanted.clear();
    for (const Outgoing& message : outgoing_) {
      if (message.done < message.all) wanted.push_back({peers_[static_cast<std::size_t>(message.rank)].fd(), POLLOUT, 0});
    }
    const std::size_t sending = wanted.size();
    int waits_for = -1;
    for (const Incoming& message : incoming_) {
      if (message.done == message.all) continue;
      wanted.push_back({peers_[static_cast<std::size_t>(message.rank)].fd(), POLLIN, 0});
      waits_for = message.rank;
    }
    waits_for_.store(waits_for, std::memory_order_relaxed);
    if (wanted.empty()) return;
    if (::poll(wanted.data(), wanted.size(), -1) < 0 && errno != EINTR)
      throw IoError(fmt::format("cannot wait for other ranks: {}", std::strerror(errno)));
    team_.check();
    std::size_t at = 0;
    for (Outgoing& message : outgoing_) {
      if (message.done < message.all && wanted[at++].revents != 0) go_on(message);
    }
    at = sending;
    for (Incoming& message : incoming_) {
      if (message.done < message.all && wanted[at++].revents != 0) go_on(message);
    }
  }
}

void TcpTransport::go_on(Outgoing& message) {
  const Socket& peer = peers_[static_cast<std::size_t>(message.rank)];
  const bool in_header = message.done < sizeof(Header);
  const std::byte* const from = in_header ? reinterpret_cast<const std::byte*>(&message.header) + message.done
                                          : message.data + (message.done - sizeof(Header));
  const std::size_t left = (in_header ? sizeof(Header) : message.all) - message.done;
  const ssize_t sent = ::send(peer.fd(), from, left, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) {
    message.done += static_cast<std::size_t>(sent);
  } else if (errno != EAGAIN && errno != EINTR) {
    const int error = errno;
    team_.check();
    throw AbortedError(fmt::format("{} cannot be reached: {}", peer.peer(), std::strerror(error)));
  }
}

void TcpTransport::go_on(Incoming& message) {
  const Socket& peer = peers_[static_cast<std::size_t>(message.rank)];
  Header got = message.header;  // the bytes expected are kept until the header is whole
  const bool in_header = message.done < sizeof(Header);
  std::byte header[sizeof(Header)];
  if (in_header) {
    // A header is short and comes at once, but for the rarest of cuts: it is taken whole or not at all.
    const ssize_t seen = ::recv(peer.fd(), header, sizeof header, MSG_DONTWAIT | MSG_PEEK);
    if (seen > 0 && seen < static_cast<ssize_t>(sizeof header)) return;
  }
  std::byte* const to = in_header ? header : message.data + (message.done - sizeof(Header));
  const std::size_t left = in_header ? sizeof header : message.all - message.done;
  const ssize_t taken = ::recv(peer.fd(), to, left, MSG_DONTWAIT);
  if (taken <= 0) {
    if (taken < 0 && (errno == EAGAIN || errno == EINTR)) return;
    const int error = taken < 0 ? errno : 0;
    team_.check();
    throw AbortedError(error == 0 ? fmt::format("{} closed its connection", peer.peer())
                                  : fmt::format("{} cannot be heard: {}", peer.peer(), std::strerror(error)));
  }
  message.done += static_cast<std::size_t>(taken);
  if (!in_header) return;
  std::memcpy(&got, header, sizeof header);
  SPILLWAY_CHECK(got.magic == kMagic && got.call == call_ && got.bytes == message.header.bytes,
                 "rank {} expects {} bytes of {} in call {}, which sends {} in call {}", rank_, message.header.bytes, peer.peer(),
                 call_, got.bytes, got.call);
}

}  // namespace spillway
