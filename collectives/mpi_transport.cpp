#include "collectives/mpi_transport.h"

#include <fmt/core.h>

#include <chrono>
#include <thread>

namespace spillway {

void MpiTransport::exchange(std::span<const Send> sends, std::span<const Receive> receives) {
  constexpr std::chrono::microseconds kNap(50);
  constexpr int kNapsBetweenLooks = 200;  // a look at the connections costs a call of the system for each
  beside_.check_peers();
  messages_.clear();
  for (const Receive& receive : receives)
    messages_.push_back({receive.from, false, receive.data, static_cast<std::uint64_t>(receive.bytes)});
  for (const Send& send : sends)
    messages_.push_back({send.to, true, const_cast<std::byte*>(send.data), static_cast<std::uint64_t>(send.bytes)});
  check(table_.begin(messages_.data(), messages_.size()));
  for (int naps = 0;; ++naps) {
    bool is_complete = false;
    check(table_.test(&is_complete));
    if (is_complete) return;
    if (naps % kNapsBetweenLooks == kNapsBetweenLooks - 1) {
      beside_.check_peers();
    } else {
      beside_.check();
    }
    std::this_thread::sleep_for(kNap);
  }
}

// A rank that is gone is a better reason than what MPI makes of it.
void MpiTransport::check(const char* error) {
  if (error == nullptr) return;
  const std::string words = fmt::format("MPI failed: {}", error);
  beside_.check_peers();
  throw AbortedError(words);
}

}  // namespace spillway
