// The pool's promise to kernels: worker numbers are below threads(), and no number is used twice at a time, whoever calls.
#include "memory/base/parallel.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

namespace spillway {
namespace {

class ParallelTest : public testing::TestWithParam<int> {};

// The compute lane and the update lane call from threads of their own.
TEST_P(ParallelTest, CallersShareWorkersWithoutMeeting) {
  const ThreadPool pool(GetParam());
  std::array<std::atomic<int>, 64> busy{};
  std::atomic<int> outside = 0, meetings = 0;
  std::atomic<std::int64_t> done = 0;
  const auto call = [&] {
    for (int round = 0; round < 2000; ++round) {
      pool.parallel_for(8, [&](std::int64_t, int worker) {
        if (worker < 0 || worker >= pool.threads()) {
          ++outside;
          return;
        }
        auto& mine = busy[static_cast<std::size_t>(worker)];
        if (mine.fetch_add(1) != 0) ++meetings;
        for (int i = 0; i < 100; ++i) done.fetch_add(0, std::memory_order_relaxed);
        mine.fetch_sub(1);
        ++done;
      });
    }
  };
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) callers.emplace_back(call);
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(outside, 0);
  EXPECT_EQ(meetings, 0);
  EXPECT_EQ(done, 3 * 2000 * 8);
}

INSTANTIATE_TEST_SUITE_P(Threads, ParallelTest, testing::Values(1, 2, 3, 5));

}  // namespace
}  // namespace spillway
