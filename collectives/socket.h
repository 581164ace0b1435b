// TCP sockets with deadlines: listening, connecting, and whole messages of known length. Errors name the other side.
// Not here: what messages say (rendezvous.h, tcp_transport.h, offload/remote_rank.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace spillway {

using Deadline = std::chrono::steady_clock::time_point;

// One connection or one listening socket. Not for two threads at a time, but for shut_down().
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd, std::string peer = {}) : fd_(fd), peer_(std::move(peer)) {}
  ~Socket();
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)), peer_(std::move(other.peer_)) {}
  Socket& operator=(Socket&& other) noexcept;

  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  const std::string& peer() const { return peer_; }  // "10.0.0.2", or as named by whoever made it
  void set_peer(std::string name) { peer_ = std::move(name); }

  // All of the bytes, by the deadline; IoError names the peer: "rank 1 closed the connection".
  void send(std::span<const std::byte> bytes, Deadline deadline);
  void receive(std::span<std::byte> bytes, Deadline deadline);
  // Ends sending and receiving on both sides, also of a call that waits. From any thread.
  void shut_down() const noexcept;

 private:
  int fd_ = -1;
  std::string peer_;
};

// Listens on a port of all addresses; 0: the system chooses. InputError where the port is in use.
Socket listen_on(int port);
int port_of(const Socket& listening);
// The next connection; none by the deadline.
Socket accept_by(const Socket& listening, Deadline deadline);
// Connects, and tries again until the deadline where nobody listens yet. InputError where the name does not resolve, IoError
// where nobody has answered.
Socket connect_to(const std::string& host, int port, Deadline deadline);

}  // namespace spillway
