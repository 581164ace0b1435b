#include "trainer/machine/copy_rate.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "memory/types.h"

namespace spillway {
namespace {

double measure() {
  constexpr std::size_t bytes = 64 * kMiB;
  std::vector<std::byte> from(bytes, std::byte{1}), to(bytes);
  double best = 0;
  for (int turn = 0; turn < 4; ++turn) {
    const auto begin = std::chrono::steady_clock::now();
    std::memcpy(to.data(), from.data(), bytes);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best = std::max(best, static_cast<double>(bytes) / took.count());
  }
  return best;
}

}  // namespace

double measured_copy_bytes_per_s() {
  static const double rate = measure();
  return rate;
}

}  // namespace spillway
