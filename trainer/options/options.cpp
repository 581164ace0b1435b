#include "trainer/options/options.h"

#include <fmt/core.h>

#include <algorithm>

#include "memory/base/error.h"
#include "trainer/host/host.h"

namespace spillway {

int threads_of(const RunOptions& options) {
  return options.parallel.threads > 0 ? static_cast<int>(options.parallel.threads) : usable_threads();
}

int threads_of_rank(const RunOptions& options) {
  const ParallelOptions& parallel = options.parallel;
  // A launcher that binds its processes to cores has dealt them out.
  if (parallel.launch && parallel.threads == 0 && is_bound_to_cores()) return usable_threads();
  return std::max(1, threads_of(options) / static_cast<int>(parallel.ranks_here()));
}

int threads_of_run(const RunOptions& options) {
  constexpr int kOfLanes = 8;  // of each rank, and for the threads that plan, copy checkpoints and read ahead
  return (2 * threads_of_rank(options) + kOfLanes) * static_cast<int>(options.parallel.launch ? 1 : options.parallel.ranks);
}

std::int64_t seq_length_for(const RunOptions& options, std::int64_t max_positions) {
  const std::int64_t asked = options.batch.seq_length;
  if (asked == 0) return max_positions > 0 ? std::min(max_positions, kDefaultSeqLength) : kDefaultSeqLength;
  if (max_positions > 0 && asked > max_positions) {
    throw InputError(
        fmt::format("--seq-length: found {}, allowed: at most {}, the positions of the model", asked, max_positions));
  }
  return asked;
}

}  // namespace spillway
