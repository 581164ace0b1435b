// NCCL's transport over its twin on emulated devices: the bits and the bytes of ranks that are threads, however late the devices
// are; a rank that is gone, or that breaks off, wakes the others.
#include "collectives/nccl_transport.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <latch>
#include <thread>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/threads_transport.h"
#include "offload/cuda/device_rank_memory.cuh"
#include "tests/simt/nccl_twin.h"
#include "tests/simt/runtime.h"

namespace spillway {
namespace {

std::vector<float> drawn(std::int64_t elements, int rank) {
  std::vector<float> values(static_cast<std::size_t>(elements));
  for (std::int64_t i = 0; i < elements; ++i)
    values[static_cast<std::size_t>(i)] =
        std::ldexp(static_cast<float>((i * 7919 + rank * 104729) % 65521), (static_cast<int>(i) + rank) % 23);
  return values;
}

NcclUniqueId new_id() {
  NcclUniqueId id;
  EXPECT_EQ(simt::nccl_twin().get_unique_id(&id), NcclLibrary::kSuccess);
  return id;
}

// A team without connections, whose abort is one rank's.
struct Connections {
  explicit Connections(int rank) : team(rank, {}) {}
  TcpTeam team;
};

// Reduces over ranks and gathers the parts again, on emulated devices; on the host where `runtime` is null.
std::vector<float> reduced(Transport& transport, const Sharding& sharding, std::int64_t elements, Runtime* runtime, Bytes& sent) {
  const ThreadPool pool(1);
  const std::vector<float> whole = drawn(elements, transport.rank());
  std::vector<float> result(whole.size());
  const Bytes bytes = elements * 4, of_part = shard_elements(elements, sharding) * 4;
  const std::unique_ptr<Runtime> of_host = runtime == nullptr ? Runtime::make_cpu() : nullptr;
  Runtime& on = runtime == nullptr ? *of_host : *runtime;
  const Allocation array = on.allocate(Tier::device, bytes, "whole"), part = on.allocate(Tier::device, of_part, "part"),
                   staging = on.allocate(Tier::device, staging_of_sum(elements, sharding), "staging");
  on.copy(array.data(), reinterpret_cast<const std::byte*>(whole.data()), bytes);
  HostRankMemory by_host(pool);
  std::unique_ptr<RankMemory> by_device;
  if (runtime != nullptr) by_device = std::make_unique<cuda::DeviceRankMemory>(*runtime);
  Communicator communicator(transport, sharding, by_device ? *by_device : by_host);
  auto* const floats = reinterpret_cast<float*>(array.data());
  const bool shards = sharding.shards_optimizer();
  communicator.reduce(elements, floats, shards ? reinterpret_cast<float*>(part.data()) : nullptr, staging.data());
  if (shards) communicator.gather(elements, 4, part.data(), array.data());
  on.copy(reinterpret_cast<std::byte*>(result.data()), array.data(), bytes);
  sent = communicator.sent().all();
  return result;
}

TEST(Nccl, HasTheBitsAndTheBytesOfThreads) {
  int seed = 0;
  for (const Sharding& sharding : {Sharding{.ranks = 2, .group = 2, .stage = 3}, Sharding{.ranks = 3, .group = 3, .stage = 0},
                                   Sharding{.ranks = 4, .group = 2, .stage = 2}}) {
    for (const std::int64_t elements : {std::int64_t{2048}, std::int64_t{14'336}}) {
      const auto ranks = static_cast<std::size_t>(sharding.ranks);
      std::vector<std::vector<float>> by_threads(ranks), by_nccl(ranks);
      std::vector<Bytes> sent_by_threads(ranks), sent_by_nccl(ranks);
      ThreadTeam team(sharding.ranks);
      const NcclUniqueId id = new_id();
      ++seed;
      const auto on_all = [&](const auto& body) {
        std::vector<std::jthread> threads;
        for (std::size_t rank = 0; rank < ranks; ++rank) threads.emplace_back([&body, rank] { body(rank); });
      };
      on_all([&](std::size_t rank) {
        by_threads[rank] = reduced(team.of(static_cast<int>(rank)), sharding, elements, nullptr, sent_by_threads[rank]);
      });
      on_all([&](std::size_t rank) {
        const auto runtime = simt::make_runtime({.seed = static_cast<std::uint64_t>(seed + static_cast<int>(rank))});
        Connections connections(static_cast<int>(rank));
        NcclTransport transport(simt::nccl_twin(), id, static_cast<int>(rank), sharding.ranks, *runtime, connections.team);
        by_nccl[rank] = reduced(transport, sharding, elements, runtime.get(), sent_by_nccl[rank]);
      });
      EXPECT_TRUE(by_nccl == by_threads) << sharding.ranks << " " << elements;
      EXPECT_EQ(sent_by_nccl, sent_by_threads);
    }
  }
}

// Two ranks make a call. Then rank 1 expects 64 bytes that do not come, because rank 0 does `other`; `beside` runs beside rank 1.
// Returns the error that rank 1 hears.
using Does = std::function<void(NcclTransport&)>;
std::string heard(const Does& other, const Does& beside = [](NcclTransport&) {}) {
  const NcclUniqueId id = new_id();
  std::string words;
  const auto body = [&](int rank) {
    const auto runtime = simt::make_runtime();
    Connections connections(rank);
    NcclTransport transport(simt::nccl_twin(), id, rank, 2, *runtime, connections.team);
    const Allocation mine = runtime->allocate(Tier::device, 64, "mine"), theirs = runtime->allocate(Tier::device, 64, "theirs");
    const Send send{1 - rank, mine.data(), 64};
    const Receive receive{1 - rank, theirs.data(), 64};
    transport.exchange({&send, 1}, {&receive, 1});
    if (rank == 0) return other(transport);
    const std::jthread another([&] { beside(transport); });
    const Receive next{0, theirs.data(), 64};
    try {
      transport.exchange({}, {&next, 1});
    } catch (const AbortedError& error) {
      words = error.what();
    }
  };
  const std::jthread first([&] { body(0); });
  body(1);
  return words;
}

TEST(Nccl, ARankThatIsGoneIsHeardOf) {
  EXPECT_THAT(heard([](NcclTransport&) {}), testing::HasSubstr("of rank 1: remote process exited"));
}

TEST(Nccl, AMessageOfAnotherSizeIsNoticed) {
  const auto words = heard([](NcclTransport& transport) {
    const auto runtime = simt::make_runtime();
    const Allocation mine = runtime->allocate(Tier::device, 64, "mine");
    const Send send{1, mine.data(), 32};
    transport.exchange({&send, 1}, {});
  });
  EXPECT_THAT(words, testing::HasSubstr("remote process exited"));
}

TEST(Nccl, AnAbortWakesWhoWaits) {
  std::latch is_over(1);
  const auto words = heard([&](NcclTransport&) { is_over.wait(); },
                           [&](NcclTransport& transport) {
                             std::this_thread::sleep_for(std::chrono::milliseconds(50));
                             transport.abort("the disk is full");
                             // The other rank stays until this one has heard it.
                             std::this_thread::sleep_for(std::chrono::milliseconds(50));
                             is_over.count_down();
                           });
  EXPECT_EQ(words, "the disk is full");
}

TEST(Nccl, ALibraryThatIsNotThereIsNamed) {
  try {
    open_nccl("libnccl-that-is-not-there.so");
    ADD_FAILURE() << "it was opened";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("libnccl-that-is-not-there.so"));
    EXPECT_THAT(error.help(), testing::HasSubstr("--ranks N without a launcher"));
  }
}

}  // namespace
}  // namespace spillway
