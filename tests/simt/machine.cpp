#include "tests/simt/machine.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <string_view>
#include <thread>

#include "memory/base/random.h"
#include "tests/simt/block.h"
#include "tests/simt/global_memory.h"

namespace spillway::simt {
namespace {

std::atomic<std::uint32_t> counted_blocks{1};

// The order in which blocks begin.
std::vector<std::int64_t> order_of(std::int64_t blocks, std::uint64_t seed) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(blocks));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[mix64(seed * 0x9e3779b97f4a7c15u + i) % i]);
  return order;
}

}  // namespace

std::string text_of(const Site& site) {
  const std::string_view file = site.file_name();
  return fmt::format("{}:{}", file.substr(file.rfind('/') + 1), site.line());
}

Counts& Counts::operator+=(const Counts& other) {
  read_bytes += other.read_bytes, written_bytes += other.written_bytes;
  requested_bytes += other.requested_bytes, moved_bytes += other.moved_bytes;
  shared_requests += other.shared_requests, bank_conflicts += other.bank_conflicts;
  return *this;
}

void Queue::run(const Grid& grid, int threads_of_block, void (*body)(const void* kernel, const Gpu& gpu), const void* kernel) {
  if (threads_of_block % kWarp != 0 || grid.blocks < 1)
    throw Error(fmt::format("a launch of {} blocks of {} threads", grid.blocks, threads_of_block));
  Launch launch{.grid = grid, .threads = threads_of_block, .body = body, .kernel = kernel};
  launch.first_count = counted_blocks.fetch_add(static_cast<std::uint32_t>(grid.blocks));
  const std::vector<std::int64_t> order = order_of(grid.blocks, options_.seed);
  const auto under_way = launch_under_way();
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    Counts counts;
    try {
      static thread_local std::unique_ptr<Block> block;  // making its fibers' stacks is expensive
      if (!block || !block->is_for(options_)) block = std::make_unique<Block>(options_);
      for (std::size_t i = next++; i < order.size(); i = next++) block->run(launch, order[i], counts);
    } catch (...) {
      next = order.size();
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    counts_ += counts;
  };
  {
    std::vector<std::jthread> others;
    for (int i = 1; i < options_.threads; ++i) others.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace spillway::simt
