// A transport between processes: a connection to each other rank. Messages of one call go and come together, however long they
// are, so that no two ranks wait for each other to take what they send. Each message says which call it is of and how long it is;
// one that its receiver does not expect is our bug, or a stranger's. Not here: who connects to whom (rendezvous.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/socket.h"
#include "collectives/transport.h"

namespace spillway {

class TcpTransport;

// The transports of one process, one for each channel: an abort of one ends all.
class TcpTeam {
 public:
  // [channels][ranks] connections; those of this rank to itself are not open.
  TcpTeam(int rank, std::vector<std::vector<Socket>> channels);
  ~TcpTeam();
  TcpTeam(const TcpTeam&) = delete;
  TcpTeam& operator=(const TcpTeam&) = delete;

  TcpTransport& of(int channel);
  // Closes all connections: the others hear of it by their ends. From any thread; the first reason stays.
  void abort(const std::string& reason) noexcept;
  void check() const;  // throws an AbortedError after abort()

 private:
  std::vector<std::unique_ptr<TcpTransport>> channels_;
  std::atomic<bool> is_aborted_{false};
  mutable std::mutex reason_mutex_;
  std::string reason_;
};

class TcpTransport final : public Transport {
 public:
  TcpTransport(int rank, std::vector<Socket> peers, TcpTeam& team) : rank_(rank), peers_(std::move(peers)), team_(team) {}

  int rank() const override { return rank_; }
  int ranks() const override { return static_cast<int>(peers_.size()); }
  // A peer that closes its connection is an AbortedError that names it: its own words say why, if it has any.
  void exchange(std::span<const Send> sends, std::span<const Receive> receives) override;
  void abort(const std::string& reason) noexcept override { team_.abort(reason); }
  int waits_for() const override { return waits_for_.load(std::memory_order_relaxed); }
  void shut_down() const noexcept;

  // For what carries the bytes otherwise, while it waits: throw the AbortedError that exchange() would, after an abort, or also
  // where a peer has closed its connection, or says on it what nobody expects.
  void check() const { team_.check(); }
  void check_peers() const;

 private:
  struct Header {
    std::uint64_t magic, call, bytes;
  };
  // A message on its way, the header first.
  struct Outgoing {
    int rank;
    Header header;
    const std::byte* data;
    std::size_t done, all;  // bytes, with the header
  };
  struct Incoming {
    int rank;
    Header header;
    std::byte* data;
    std::size_t done, all;
  };
  void go_on(Outgoing& message);
  void go_on(Incoming& message);

  static constexpr std::uint64_t kMagic = 0x5753'4C4C'4950'5301;
  const int rank_;
  std::vector<Socket> peers_;
  std::uint64_t call_ = 0;
  std::vector<Outgoing> outgoing_;  // of the call under way
  std::vector<Incoming> incoming_;
  std::atomic<int> waits_for_{-1};
  TcpTeam& team_;
};

}  // namespace spillway
