// Clients that are no ranks knock while ranks meet: random bytes, lengths beyond all bounds, and hellos that are cut short at
// each byte. All are dropped, and the start goes on.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "collectives/message.h"
#include "collectives/rendezvous.h"

namespace spillway {
namespace {

constexpr std::uint64_t kMagic = 0x3153'4B4E'4152'5053;
using Bytestring = std::vector<std::byte>;

Bytestring framed(const Bytestring& body, std::uint64_t said) {
  const std::array<std::uint64_t, 2> head = {kMagic, said};
  Bytestring bytes(sizeof head + body.size());
  std::memcpy(bytes.data(), head.data(), sizeof head);
  std::ranges::copy(body, bytes.begin() + sizeof head);
  return bytes;
}

// As rank 1 of 2 says it.
Bytestring hello() {
  Message message;
  message.put(std::uint32_t{1});
  for (const std::int32_t field : {1, 2, 4242}) message.put(field);
  message.put(std::uint32_t{1});
  message.put_text("--lr"), message.put_text("1e-5");
  return message.bytes();
}

std::vector<Bytestring> hostile() {
  std::vector<Bytestring> all;
  std::mt19937_64 random(17);
  const auto drawn = [&](std::size_t size) {
    Bytestring bytes(size);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    return bytes;
  };
  for (std::size_t size = 0; size < 300; size += 7) {
    all.push_back(drawn(size));
    all.push_back(framed(drawn(size), size));
  }
  const Bytestring whole = hello();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Bytestring cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    all.push_back(framed(cut, whole.size()));  // fewer bytes than it says
    all.push_back(framed(cut, cut.size()));    // fewer fields than a hello has
  }
  constexpr auto kMi = std::uint64_t{1} << 20;
  for (const std::uint64_t said : {kMi, kMi + 1, kMi << 20, ~std::uint64_t{0}}) all.push_back(framed(whole, said));
  for (std::size_t at = 20; at + 8 <= whole.size(); ++at) {  // lengths of texts beyond the message
    Bytestring huge = whole;
    std::ranges::fill_n(huge.begin() + static_cast<std::ptrdiff_t>(at), 8, std::byte{0xff});
    if (at == 20 || at == 32) all.push_back(framed(huge, huge.size()));
  }
  return all;
}

TEST(Rendezvous, HostileClientsAreDropped) {
  const int port = port_of(listen_on(0));
  const RendezvousOptions first{.ranks = 2, .port = port, .agreed = {{"--lr", "1e-5"}}, .timeout = std::chrono::seconds(60)};
  std::atomic<int> met{0};
  std::jthread rank_0([&] { met += meet(first).front()[1].is_open() ? 1 : 0; });
  int knocked = 0;
  for (const Bytestring& bytes : hostile()) {
    const Deadline soon = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    Socket client = connect_to("127.0.0.1", port, soon);
    try {
      client.send(bytes, soon);
    } catch (const IoError&) {
      // It was dropped before it had said all.
    }
    ++knocked;
  }
  EXPECT_GT(knocked, 150);
  RendezvousOptions second = first;
  second.rank = 1;
  EXPECT_TRUE(meet(second).front()[0].is_open());
  rank_0.join();
  EXPECT_EQ(met, 1);
}

}  // namespace
}  // namespace spillway
