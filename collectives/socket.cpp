#include "collectives/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "memory/base/error.h"

namespace spillway {
namespace {

constexpr std::chrono::milliseconds kBetweenTries(100);

// Milliseconds to the deadline, for poll().
int left_ms(Deadline deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30));
}

bool is_ready_by(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd wanted{.fd = fd, .events = events, .revents = 0};
    const int found = ::poll(&wanted, 1, left_ms(deadline));
    if (found > 0) return true;
    if (found == 0) return false;
    if (errno != EINTR) throw IoError(fmt::format("cannot wait for a connection: {}", std::strerror(errno)));
  }
}

std::string text_of(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, text, sizeof text);
  } else {
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, text, sizeof text);
  }
  const std::string name = text;
  constexpr std::string_view mapped = "::ffff:";  // an IPv4 address on a socket of both kinds
  return name.starts_with(mapped) ? name.substr(mapped.size()) : name;
}

void send_at_once(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this == &other) return *this;
  if (fd_ >= 0) ::close(fd_);
  fd_ = std::exchange(other.fd_, -1);
  peer_ = std::move(other.peer_);
  return *this;
}

void Socket::send(std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    if (!is_ready_by(fd_, POLLOUT, deadline)) throw IoError(fmt::format("{} takes no more bytes", peer_));
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (sent < 0) throw IoError(fmt::format("{} cannot be reached: {}", peer_, std::strerror(errno)));
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
}

void Socket::receive(std::span<std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    if (!is_ready_by(fd_, POLLIN, deadline)) throw IoError(fmt::format("{} does not answer", peer_));
    const ssize_t got = ::recv(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got < 0) throw IoError(fmt::format("{} cannot be heard: {}", peer_, std::strerror(errno)));
    if (got == 0) throw IoError(fmt::format("{} closed the connection", peer_));
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

void Socket::shut_down() const noexcept {
  if (fd_ >= 0) ::shutdown(fd_, SHUT_RDWR);
}

Socket listen_on(int port) {
  Socket listening(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool has_ipv6 = listening.is_open();
  if (!has_ipv6) listening = Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1, off = 0;
  ::setsockopt(listening.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in6 any6{.sin6_family = AF_INET6, .sin6_port = htons(static_cast<std::uint16_t>(port))};
  sockaddr_in any4{.sin_family = AF_INET, .sin_port = htons(static_cast<std::uint16_t>(port))};
  if (has_ipv6) ::setsockopt(listening.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  const auto* address = has_ipv6 ? reinterpret_cast<const sockaddr*>(&any6) : reinterpret_cast<const sockaddr*>(&any4);
  const socklen_t bytes = has_ipv6 ? sizeof any6 : sizeof any4;
  if (::bind(listening.fd(), address, bytes) != 0 || ::listen(listening.fd(), SOMAXCONN) != 0) {
    throw InputError(fmt::format("port {}: cannot be listened on: {}", port, std::strerror(errno)),
                     "Another run may use it. Give another by --rendezvous-port, or MASTER_PORT, to all ranks.");
  }
  return listening;
}

int port_of(const Socket& listening) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  SPILLWAY_CHECK(::getsockname(listening.fd(), reinterpret_cast<sockaddr*>(&address), &bytes) == 0, "a socket without a name");
  return ntohs(address.ss_family == AF_INET ? reinterpret_cast<sockaddr_in&>(address).sin_port
                                            : reinterpret_cast<sockaddr_in6&>(address).sin6_port);
}

Socket accept_by(const Socket& listening, Deadline deadline) {
  while (is_ready_by(listening.fd(), POLLIN, deadline)) {
    sockaddr_storage address{};
    socklen_t bytes = sizeof address;
    Socket made(::accept4(listening.fd(), reinterpret_cast<sockaddr*>(&address), &bytes, SOCK_CLOEXEC));
    if (!made.is_open()) continue;  // it was gone before it was taken
    send_at_once(made.fd());
    made.set_peer(text_of(address));
    return made;
  }
  return {};
}

Socket connect_to(const std::string& host, int port, Deadline deadline) {
  std::string why = "nobody listens there";
  do {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    const std::string service = fmt::format("{}", port);
    if (const int failed = ::getaddrinfo(host.c_str(), service.c_str(), &hints, &found); failed != 0) {
      throw InputError(fmt::format("the address {} does not resolve: {}", host, ::gai_strerror(failed)),
                       "MASTER_ADDR is the host of rank 0, as the other hosts know it.");
    }
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, &::freeaddrinfo);
    for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
      Socket made(::socket(address->ai_family, address->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address->ai_protocol), host);
      if (!made.is_open()) continue;
      int error = 0;
      socklen_t bytes = sizeof error;
      if (::connect(made.fd(), address->ai_addr, address->ai_addrlen) != 0) {
        if (errno != EINPROGRESS || !is_ready_by(made.fd(), POLLOUT, deadline)) continue;
        ::getsockopt(made.fd(), SOL_SOCKET, SO_ERROR, &error, &bytes);
      }
      if (error == 0) {
        send_at_once(made.fd());
        return made;
      }
      why = std::strerror(error);
    }
    std::this_thread::sleep_for(kBetweenTries);
  } while (std::chrono::steady_clock::now() < deadline);
  throw IoError(fmt::format("{} port {}: cannot be reached: {}", host, port, why),
                "Is rank 0 running there? --rendezvous-timeout says how long ranks wait for each other.");
}

}  // namespace spillway
