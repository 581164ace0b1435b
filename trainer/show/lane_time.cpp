#include "trainer/show/lane_time.h"

#include <algorithm>
#include <limits>

namespace spillway {

std::vector<double> lane_seconds(std::span<const Lane> lanes, std::span<const Span> spans) {
  std::vector<std::size_t> order(spans.size());
  for (std::size_t id = 0; id < order.size(); ++id) order[id] = id;
  std::ranges::stable_sort(order, {}, [&](std::size_t id) { return spans[id].begin_s; });
  By<Lane, double> free_at;
  std::ranges::fill(free_at, -std::numeric_limits<double>::infinity());
  std::vector<double> seconds(spans.size(), 0);
  for (const std::size_t id : order) {
    double& free = free_at[lanes[id]];
    seconds[id] = std::max(0.0, spans[id].end_s - std::max(spans[id].begin_s, free));
    free = std::max(free, spans[id].end_s);
  }
  return seconds;
}

}  // namespace spillway
