// Ranks over TCP: they find each other, whoever else knocks; sums have the bits of the tree; an end or an abort wakes all.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/rendezvous.h"
#include "collectives/tcp_transport.h"
#include "collectives/threads_transport.h"

namespace spillway {
namespace {

int free_port() { return port_of(listen_on(0)); }

RendezvousOptions options_of(int rank, int ranks, int port) {
  return {.rank = rank,
          .ranks = ranks,
          .port = port,
          .channels = 2,
          .agreed = {{"--lr", "1e-5"}},
          .timeout = std::chrono::seconds(20)};
}

// Runs `body` on a thread for each rank, with the connections of its two channels.
template <typename Body>
void on_ranks(int ranks, const Body& body) {
  const int port = free_port();
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([=] { body(rank, meet(options_of(rank, ranks, port))); });
}

std::vector<float> drawn(std::int64_t elements, int rank) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < elements; ++i) values.push_back(1 / static_cast<float>(3 + (i * 7 + rank * 13) % 1009));
  return values;
}

std::vector<float> reduced(Communicator& communicator, const Sharding& sharding, std::int64_t elements) {
  std::vector<float> whole = drawn(elements, communicator.rank());
  std::vector<float> part(static_cast<std::size_t>(shard_elements(elements, sharding)));
  std::vector<std::byte> staging(static_cast<std::size_t>(staging_of_sum(elements, sharding)));
  const bool shards = sharding.shards_optimizer();
  communicator.reduce(elements, whole.data(), shards ? part.data() : nullptr, staging.data());
  std::vector<float> gathered(whole.size());
  if (shards) {
    communicator.gather(elements, 4, reinterpret_cast<const std::byte*>(part.data()),
                        reinterpret_cast<std::byte*>(gathered.data()));
    return gathered;
  }
  return whole;
}

TEST(Tcp, HasTheBitsAndTheBytesOfThreads) {
  for (const Sharding& sharding : {Sharding{.ranks = 2, .group = 2, .stage = 3}, Sharding{.ranks = 3, .group = 3, .stage = 0},
                                   Sharding{.ranks = 4, .group = 2, .stage = 2}}) {
    for (const std::int64_t elements : {std::int64_t{4096}, std::int64_t{3'000'320}}) {
      std::vector<std::vector<float>> by_threads(4), by_tcp(4);
      std::vector<Bytes> sent_by_threads(4), sent_by_tcp(4);
      ThreadTeam team(sharding.ranks);
      {
        std::vector<std::jthread> threads;
        for (int rank = 0; rank < sharding.ranks; ++rank) {
          threads.emplace_back([&, rank] {
            const ThreadPool pool(1);
            HostRankMemory memory(pool);
            Communicator communicator(team.of(rank), sharding, memory);
            by_threads[static_cast<std::size_t>(rank)] = reduced(communicator, sharding, elements);
            sent_by_threads[static_cast<std::size_t>(rank)] = communicator.sent().all();
          });
        }
      }
      on_ranks(sharding.ranks, [&](int rank, std::vector<std::vector<Socket>> mesh) {
        TcpTeam team_of_rank(rank, std::move(mesh));
        Transport& transport = team_of_rank.of(1);
        const ThreadPool pool(1);
        HostRankMemory memory(pool);
        Communicator communicator(transport, sharding, memory);
        by_tcp[static_cast<std::size_t>(rank)] = reduced(communicator, sharding, elements);
        sent_by_tcp[static_cast<std::size_t>(rank)] = communicator.sent().all();
      });
      EXPECT_TRUE(by_tcp == by_threads) << sharding.ranks << " " << elements;
      EXPECT_EQ(sent_by_tcp, sent_by_threads);
    }
  }
}

TEST(Tcp, ARankThatEndsIsNamed) {
  std::mutex mutex;
  std::vector<std::string> heard;
  on_ranks(3, [&](int rank, std::vector<std::vector<Socket>> mesh) {
    TcpTeam team(rank, std::move(mesh));
    Transport& transport = team.of(0);
    if (rank == 2) return;  // its connections close
    std::byte bytes[8]{};
    const Receive receive{2, bytes, 8};
    try {
      transport.exchange({}, {&receive, 1});
      ADD_FAILURE() << "received from a rank that has ended";
    } catch (const AbortedError& error) {
      const std::lock_guard lock(mutex);
      heard.emplace_back(error.what());
    }
  });
  ASSERT_EQ(heard.size(), 2U);
  for (const std::string& words : heard) EXPECT_EQ(words, "rank 2 (127.0.0.1) closed its connection");
}

TEST(Tcp, AnAbortWakesWhoWaits) {
  on_ranks(2, [&](int rank, std::vector<std::vector<Socket>> mesh) {
    TcpTeam team(rank, std::move(mesh));
    Transport& transport = team.of(0);
    std::byte bytes[8]{};
    const Receive receive{1 - rank, bytes, 8};
    std::jthread aborts;
    if (rank == 0) {
      aborts = std::jthread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        transport.abort("the disk is full");
      });
    }
    try {
      transport.exchange({}, {&receive, 1});
      ADD_FAILURE() << "nobody sent";
    } catch (const AbortedError& error) {
      EXPECT_STREQ(error.what(), rank == 0 ? "the disk is full" : "rank 0 (127.0.0.1) closed its connection");
    }
  });
}

TEST(Rendezvous, StrangersAreDropped) {
  const int port = free_port();
  std::atomic<bool> over{false};
  std::jthread stranger([&] {
    for (int kind = 0; !over; ++kind) {
      try {
        Socket socket = connect_to("127.0.0.1", port, std::chrono::steady_clock::now() + std::chrono::milliseconds(200));
        const std::string words[] = {"GET / HTTP/1.1\r\n\r\n", "", std::string(64, '\xff'), "SPRANKS1"};
        const std::string& text = words[static_cast<std::size_t>(kind) % std::size(words)];
        socket.send(std::as_bytes(std::span(text)), std::chrono::steady_clock::now() + std::chrono::seconds(1));
      } catch (const Error&) {
      }
    }
  });
  std::vector<std::jthread> ranks;
  std::atomic<int> met{0};
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const auto mesh = meet(options_of(rank, 2, port));
      EXPECT_TRUE(mesh[1][static_cast<std::size_t>(1 - rank)].is_open());
      ++met;
    });
  }
  ranks.clear();
  over = true;
  EXPECT_EQ(met, 2);
}

// What both ranks of a start say that cannot be.
std::vector<std::string> refusals(RendezvousOptions first, RendezvousOptions second) {
  std::vector<std::string> said(2);
  const int port = free_port();
  std::vector<std::jthread> threads;
  for (int at = 0; at < 2; ++at) {
    threads.emplace_back([&, at] {
      RendezvousOptions options = at == 0 ? first : second;
      options.port = port;
      try {
        meet(options);
      } catch (const InputError& error) {
        said[static_cast<std::size_t>(at)] = error.what();
      }
    });
  }
  threads.clear();
  return said;
}

TEST(Rendezvous, RanksThatDisagreeAreTold) {
  RendezvousOptions first = options_of(0, 2, 0), second = options_of(1, 2, 0);
  second.agreed = {{"--lr", "2e-5"}};
  for (const std::string& said : refusals(first, second)) EXPECT_EQ(said, "--lr: rank 1 has 2e-5, and rank 0 has 1e-5");
  second = options_of(1, 3, 0);
  for (const std::string& said : refusals(first, second)) EXPECT_EQ(said, "rank 1 is one of 3, and rank 0 of 2");
  first.timeout = std::chrono::seconds(1);
  first.port = free_port();
  try {
    meet(first);
    ADD_FAILURE() << "met nobody";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "rank 1 did not come within 1 s");
  }
}

TEST(Rendezvous, APortInUseAndANameThatDoesNotResolve) {
  const Socket taken = listen_on(0);
  RendezvousOptions options = options_of(0, 2, port_of(taken));
  EXPECT_THROW(meet(options), InputError);
  options.rank = 1;
  options.address = "no.such.host.invalid";
  EXPECT_THROW(meet(options), InputError);
}

}  // namespace
}  // namespace spillway
