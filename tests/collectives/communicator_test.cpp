// Collectives of ranks that are threads, beside what a plain loop over all ranks' arrays gives.
#include "collectives/communicator.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "collectives/threads_transport.h"
#include "tests/collectives/late_transport.h"

namespace spillway {
namespace {

enum class Links { lending, copying };

// Runs `body` on a thread for each rank.
void on_ranks(const Sharding& sharding, Links links, std::uint64_t seed, const std::function<void(Communicator&)>& body,
              SumBy sum_by = SumBy::direct) {
  ThreadTeam team(sharding.ranks);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < sharding.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      LateTransport late(team.of(rank), seed);
      CopyingTransport copying(late);
      Transport& transport = links == Links::lending ? static_cast<Transport&>(late) : copying;
      const ThreadPool pool(1 + rank % 2);
      HostRankMemory memory(pool);
      Communicator communicator(transport, sharding, memory, sum_by);
      body(communicator);
    });
  }
}

// The tree as its definition says it.
float tree_sum(const std::vector<float>& of, std::size_t first, std::size_t count) {
  if (count == 1) return of[first];
  std::size_t half = 1;
  while (2 * half < count) half *= 2;
  return tree_sum(of, first, half) + tree_sum(of, first + half, count - half);
}

std::vector<float> drawn(std::int64_t elements, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(elements));
  for (float& value : values) value = normal(random) * std::exp2(static_cast<float>(random() % 30));
  return values;
}

struct Case {
  Sharding sharding;
  std::int64_t elements;
};
const Case kCases[] = {
    {{.ranks = 2, .group = 2, .stage = 3}, 4096},      {{.ranks = 2, .group = 2, .stage = 0}, 6144},
    {{.ranks = 3, .group = 3, .stage = 2}, 10'240},    {{.ranks = 4, .group = 4, .stage = 3}, 10'240},
    {{.ranks = 4, .group = 2, .stage = 3}, 10'240},    {{.ranks = 6, .group = 2, .stage = 1}, 40'960},
    {{.ranks = 8, .group = 4, .stage = 2}, 2048},      {{.ranks = 5, .group = 5, .stage = 0}, 2048},
    {{.ranks = 2, .group = 2, .stage = 3}, 2'500'608},
};

std::string name_of(const Case& of, Links links) {
  return fmt::format("{} ranks, groups of {}, stage {}, {} elements, {}", of.sharding.ranks, of.sharding.group, of.sharding.stage,
                     of.elements, links == Links::lending ? "lent" : "copied");
}

// What ranks have after a reduction of arrays drawn by rank: parts where they are sharded, else wholes.
std::vector<std::vector<float>> reduced(const Case& of, Links links, SumBy sum_by) {
  const bool shards = of.sharding.shards_optimizer();
  std::vector<std::vector<float>> results(static_cast<std::size_t>(of.sharding.ranks));
  on_ranks(
      of.sharding, links, 7,
      [&](Communicator& communicator) {
        const auto rank = static_cast<std::size_t>(communicator.rank());
        std::vector<float> whole = drawn(of.elements, 40 + rank);
        std::vector<std::byte> staging(static_cast<std::size_t>(staging_of_sum(of.elements, of.sharding)));
        std::vector<float> part(static_cast<std::size_t>(shard_elements(of.elements, of.sharding)), -1);
        communicator.reduce(of.elements, whole.data(), shards ? part.data() : nullptr, staging.data());
        part.resize(static_cast<std::size_t>(part_of(of.elements, of.sharding, communicator.rank()).elements));
        results[rank] = shards ? part : whole;
      },
      sum_by);
  return results;
}

// The same by a plain loop: `add` gives the sum of an element of all ranks, for the rank that owns it among `parts`.
using Add = std::function<float(const std::vector<float>& of, int owner)>;
std::vector<std::vector<float>> expected(const Case& of, const Add& add) {
  const bool shards = of.sharding.shards_optimizer();
  const int parts = shards ? of.sharding.group : of.sharding.ranks;
  std::vector<std::vector<float>> wholes;
  for (int rank = 0; rank < of.sharding.ranks; ++rank)
    wholes.push_back(drawn(of.elements, 40 + static_cast<std::uint64_t>(rank)));
  std::vector<float> sums, of_ranks(wholes.size());
  for (std::int64_t i = 0; i < of.elements; ++i) {
    for (std::size_t rank = 0; rank < wholes.size(); ++rank) of_ranks[rank] = wholes[rank][static_cast<std::size_t>(i)];
    sums.push_back(add(of_ranks, static_cast<int>(i / shard_elements(of.elements, parts))));
  }
  std::vector<std::vector<float>> results;
  for (int rank = 0; rank < of.sharding.ranks; ++rank) {
    const Shard part = shards ? part_of(of.elements, of.sharding, rank) : Shard{0, of.elements};
    results.emplace_back(sums.begin() + part.begin, sums.begin() + part.end());
  }
  return results;
}

TEST(Communicator, ReducesAlongTheTree) {
  for (const Case& of : kCases) {
    const auto sums = expected(of, [](const std::vector<float>& ranks, int) { return tree_sum(ranks, 0, ranks.size()); });
    for (const Links links : {Links::lending, Links::copying}) {
      for (const SumBy sum_by : {SumBy::direct, SumBy::server})
        EXPECT_TRUE(reduced(of, links, sum_by) == sums) << name_of(of, links) << (sum_by == SumBy::server ? ", by a server" : "");
    }
  }
}

// The part's own rank adds last, the one behind it first.
TEST(Communicator, ReducesRoundARing) {
  for (const Case& of : kCases) {
    if (of.sharding.shards_optimizer() && of.sharding.copies() > 1) continue;  // a ring of rings
    const auto sums = expected(of, [](const std::vector<float>& ranks, int owner) {
      float sum = ranks[static_cast<std::size_t>(owner + 1) % ranks.size()];
      for (std::size_t hop = 2; hop <= ranks.size(); ++hop) sum += ranks[(static_cast<std::size_t>(owner) + hop) % ranks.size()];
      return sum;
    });
    EXPECT_TRUE(reduced(of, Links::lending, SumBy::ring) == sums) << name_of(of, Links::lending);
    EXPECT_TRUE(reduced(of, Links::copying, SumBy::ring) == sums) << name_of(of, Links::copying);
  }
}

TEST(Communicator, GathersPartsAndWords) {
  for (const Case& of : kCases) {
    SCOPED_TRACE(name_of(of, Links::lending));
    const std::vector<float> whole = drawn(of.elements, 3);
    on_ranks(of.sharding, Links::lending, 11, [&](Communicator& communicator) {
      const Shard mine = part_of(of.elements, of.sharding, communicator.rank());
      std::vector<float> gathered(whole.size());
      communicator.gather(of.elements, 4, reinterpret_cast<const std::byte*>(whole.data() + mine.begin),
                          reinterpret_cast<std::byte*>(gathered.data()));
      EXPECT_EQ(gathered, whole);
      // In place: the part lies in the whole.
      std::ranges::fill(gathered, 0.0F);
      std::copy_n(whole.begin() + mine.begin, mine.elements, gathered.begin() + mine.begin);
      auto* const bytes = reinterpret_cast<std::byte*>(gathered.data());
      communicator.gather(of.elements, 4, bytes + 4 * mine.begin, bytes);
      EXPECT_EQ(gathered, whole);
      for (const int ranks : {of.sharding.ranks, of.sharding.group}) {
        const double words[] = {communicator.rank() + 0.25, -1.0 * communicator.rank()};
        std::vector<double> all(static_cast<std::size_t>(2 * ranks));
        communicator.gather_words(reinterpret_cast<const std::byte*>(words), reinterpret_cast<std::byte*>(all.data()),
                                  sizeof words, ranks);
        for (int rank = 0; rank < ranks; ++rank) {
          const int of_group = communicator.rank() / ranks * ranks + rank;
          EXPECT_EQ(all[static_cast<std::size_t>(2 * rank)], of_group + 0.25);
          EXPECT_EQ(all[static_cast<std::size_t>(2 * rank) + 1], -1.0 * of_group);
        }
      }
    });
  }
}

TEST(Communicator, SendsWhatTheClosedFormSays) {
  for (const Case& of : kCases) {
    for (const Links links : {Links::lending, Links::copying}) {
      SCOPED_TRACE(name_of(of, links));
      const Sharding& sharding = of.sharding;
      std::vector<Traffic> sent(static_cast<std::size_t>(sharding.ranks));
      on_ranks(sharding, links, 5, [&](Communicator& communicator) {
        std::vector<float> whole(static_cast<std::size_t>(of.elements)), part(whole.size());
        std::vector<std::byte> staging(static_cast<std::size_t>(staging_of_sum(of.elements, sharding)));
        communicator.reduce(of.elements, whole.data(), sharding.shards_optimizer() ? part.data() : nullptr, staging.data());
        if (sharding.shards_optimizer()) {
          const Shard mine = part_of(of.elements, sharding, communicator.rank());
          auto* const bytes = reinterpret_cast<std::byte*>(whole.data());
          communicator.gather(of.elements, 2, bytes + 2 * mine.begin, bytes);
        }
        std::vector<double> all(static_cast<std::size_t>(sharding.ranks));
        const double word = 1;
        communicator.gather_words(reinterpret_cast<const std::byte*>(&word), reinterpret_cast<std::byte*>(all.data()), 8,
                                  sharding.ranks);
        sent[static_cast<std::size_t>(communicator.rank())] = communicator.sent();
      });
      Traffic all;
      for (const Traffic& of_rank : sent) {
        all.gathered += of_rank.gathered, all.reduced += of_rank.reduced, all.words += of_rank.words;
      }
      const Bytes copies = sharding.copies(), group = sharding.group, ranks = sharding.ranks;
      if (sharding.shards_optimizer()) {
        EXPECT_EQ(all.gathered, 2 * of.elements * copies * (group - 1));
        EXPECT_EQ(all.reduced, 4 * of.elements * (copies * (group - 1) + 2 * (copies - 1)));
      } else {
        EXPECT_EQ(all.reduced, 8 * of.elements * (ranks - 1));
      }
      EXPECT_EQ(all.words, 8 * ranks * (ranks - 1));
    }
  }
}

// A ring sends as much as ranks that send to each other; a server's root carries what all ranks have, each way.
TEST(Communicator, OtherSumsSendWhatTheirClosedFormsSay) {
  for (const Case& of : kCases) {
    const Sharding& sharding = of.sharding;
    for (const SumBy sum_by : {SumBy::direct, SumBy::ring, SumBy::server}) {
      std::vector<Traffic> sent(static_cast<std::size_t>(sharding.ranks));
      on_ranks(
          sharding, Links::lending, 5,
          [&](Communicator& communicator) {
            std::vector<float> whole(static_cast<std::size_t>(of.elements)), part(whole.size());
            std::vector<std::byte> staging(static_cast<std::size_t>(staging_of_sum(of.elements, sharding)));
            communicator.reduce(of.elements, whole.data(), sharding.shards_optimizer() ? part.data() : nullptr, staging.data());
            sent[static_cast<std::size_t>(communicator.rank())] = communicator.sent();
          },
          sum_by);
      Bytes all = 0;
      for (const Traffic& of_rank : sent) all += of_rank.reduced;
      const Bytes bytes = 4 * of.elements, others = sharding.ranks - 1, copies = sharding.copies(), group = sharding.group;
      if (sum_by == SumBy::server) {
        const Bytes of_root = 4 * part_of(of.elements, sharding, 0).elements;
        EXPECT_EQ(all, others * bytes + (sharding.shards_optimizer() ? copies * bytes - of_root : others * bytes));
      } else {
        EXPECT_EQ(all, bytes * (sharding.shards_optimizer() ? copies * (group - 1) + 2 * (copies - 1) : 2 * others));
      }
    }
  }
}

TEST(Communicator, AnAbortWakesEverybody) {
  for (const Links links : {Links::lending, Links::copying}) {
    int told = 0;
    std::mutex mutex;
    on_ranks({.ranks = 4, .group = 4, .stage = 3}, links, 2, [&](Communicator& communicator) {
      std::vector<float> whole(4096), part(4096);
      std::vector<std::byte> staging(1 << 20);
      if (communicator.rank() == 2) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        communicator.abort("the disk of rank 2 is full");
        return;
      }
      try {
        communicator.reduce(4096, whole.data(), part.data(), staging.data());
        ADD_FAILURE() << "rank " << communicator.rank() << " went on without rank 2";
      } catch (const AbortedError& error) {
        const std::lock_guard lock(mutex);
        EXPECT_STREQ(error.what(), "the disk of rank 2 is full");
        ++told;
      }
      auto* const bytes = reinterpret_cast<std::byte*>(whole.data());
      EXPECT_THROW(communicator.gather(4096, 4, bytes, bytes), AbortedError);  // for good
    });
    EXPECT_EQ(told, 3);
  }
}

TEST(ThreadTeam, NoticesMessagesOfOtherSizes) {
  ThreadTeam team(2);
  std::byte here[16]{}, there[16]{};
  const std::jthread other([&] {
    const Send send{0, there, 8};
    EXPECT_THROW(team.of(1).exchange({&send, 1}, {}), AbortedError);
  });
  const Receive receive{1, here, 16};
  EXPECT_THROW(team.of(0).exchange({}, {&receive, 1}), Error);
  team.of(0).abort("sizes differ");
}

}  // namespace
}  // namespace spillway
