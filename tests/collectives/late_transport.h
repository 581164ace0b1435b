// Transports around another, for tests: one comes late to each call, by seed; one lends nothing, so that sums take their rounds.
#pragma once

#include <chrono>
#include <random>
#include <thread>

#include "collectives/transport.h"

namespace spillway {

class PassingTransport : public Transport {
 public:
  explicit PassingTransport(Transport& inner) : inner_(inner) {}
  int rank() const override { return inner_.rank(); }
  int ranks() const override { return inner_.ranks(); }
  void exchange(std::span<const Send> sends, std::span<const Receive> receives) override { inner_.exchange(sends, receives); }
  std::span<const std::byte* const> lend(std::span<const int> peers, const std::byte* mine) override {
    return inner_.lend(peers, mine);
  }
  void take_back(std::span<const int> peers) override { inner_.take_back(peers); }
  int waits_for() const override { return inner_.waits_for(); }
  void abort(const std::string& reason) noexcept override { inner_.abort(reason); }

 protected:
  Transport& inner_;
};

class LateTransport final : public PassingTransport {
 public:
  LateTransport(Transport& inner, std::uint64_t seed)
      : PassingTransport(inner), random_(seed + static_cast<std::uint64_t>(inner.rank())) {}
  void exchange(std::span<const Send> sends, std::span<const Receive> receives) override {
    be_late();
    inner_.exchange(sends, receives);
  }
  std::span<const std::byte* const> lend(std::span<const int> peers, const std::byte* mine) override {
    be_late();
    return inner_.lend(peers, mine);
  }
  void take_back(std::span<const int> peers) override {
    be_late();
    inner_.take_back(peers);
  }

 private:
  void be_late() {
    if (const auto us = random_() % 400; us < 200) std::this_thread::sleep_for(std::chrono::microseconds(us));
  }
  std::mt19937_64 random_;
};

class CopyingTransport final : public PassingTransport {
 public:
  using PassingTransport::PassingTransport;
  std::span<const std::byte* const> lend(std::span<const int>, const std::byte*) override { return {}; }
};

}  // namespace spillway
