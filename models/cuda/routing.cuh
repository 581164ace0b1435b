// A mixture's router: probabilities, the choice of experts, the table of rows by expert, what all routers together say, and the
// way back. Counts and sums are by single owners in fixed orders.
//
// Legend: n rows, E experts, k places of a row, c columns of the scores.
#pragma once

#include <cmath>
#include <cstdint>

#include "memory/plan/control_words.h"
#include "models/cuda/vectors.cuh"
#include "models/routing.h"

namespace spillway::cuda {

inline constexpr int kRoutingThreads = 256, kRowsOfRouting = kRoutingThreads / 32;

// Softmax in place and the row's experts, ascending. A warp has a row. Where a score is not finite, log_sums is NaN.
struct RouteRows {
  static constexpr int kThreads = kRoutingThreads;
  ops::RouterShape shape;
  std::int64_t columns = 0, places = 0;
  float *scores = nullptr, *log_sums = nullptr;
  ops::Routing to;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t row = gpu.block() * kRowsOfRouting + gpu.warp();
    if (row >= shape.rows) return;  // all lanes of the warp
    float* const p = scores + row * columns;
    softmax(gpu, p, row);
    gpu.sync_warp();
    // Each round takes the largest of those behind the last one taken: less, or equal and of a higher number.
    float last = INFINITY;
    std::int64_t last_expert = -1;
    for (std::int64_t j = 0; j < shape.per_row; ++j) {
      float best = -2;
      int best_expert = static_cast<int>(shape.experts);
      for (std::int64_t e = gpu.lane(); e < shape.experts; e += 32) {
        const float size = size_of_score(gpu, p, e);
        const bool is_behind = size < last || (size == last && e > last_expert);
        if (is_behind && size > best) best = size, best_expert = static_cast<int>(e);
      }
      for (int mask = 16; mask > 0; mask /= 2) {
        const float other = gpu.shuffle_xor(best, mask);
        const int other_expert = gpu.shuffle_xor(best_expert, mask);
        if (other > best || (other == best && other_expert < best_expert)) best = other, best_expert = other_expert;
      }
      last = best, last_expert = best_expert;
    }
    if (gpu.lane() == 0) write(gpu, p, row, last, last_expert);
  }

 private:
  // A NaN is less than any number.
  SPILLWAY_GPU static float size_of_score(const Gpu& gpu, const float* p, std::int64_t e) {
    const float x = gpu.load(p + e);
    return x == x ? x : -1.0f;
  }
  SPILLWAY_GPU void softmax(const Gpu& gpu, float* p, std::int64_t row) const {
    float most = -INFINITY, sum = 0;
    for (std::int64_t e = gpu.lane(); e < shape.experts; e += 32) {
      const float x = gpu.load(p + e);
      most = x > most ? x : most;
    }
    most = warp_max(gpu, most);
    for (std::int64_t e = gpu.lane(); e < shape.experts; e += 32) {
      const float power = expf(gpu.load(p + e) - most);
      gpu.store(p + e, power);
      sum += power;
    }
    sum = warp_sum(gpu, sum);
    for (std::int64_t e = gpu.lane(); e < shape.experts; e += 32) gpu.store(p + e, gpu.load(p + e) / sum);
    if (gpu.lane() != 0) return;
    float log_sum = most + logf(sum);
    if (shape.shared) {
      const float x = gpu.load(p + shape.experts);
      if (!(fabsf(x) < INFINITY)) log_sum = NAN;
      gpu.store(p + shape.experts, 1.0f / (1.0f + expf(-x)));
    }
    gpu.store(log_sums + row, log_sum);
  }
  SPILLWAY_GPU void write(const Gpu& gpu, const float* p, std::int64_t row, float last, std::int64_t last_expert) const {
    const auto is_taken = [&](std::int64_t e) {
      const float size = size_of_score(gpu, p, e);
      return size > last || (size == last && e <= last_expert);
    };
    float whole = shape.normalised ? 0.0f : 1.0f;
    for (std::int64_t e = 0; shape.normalised && e < shape.experts; ++e) {
      if (is_taken(e)) whole += gpu.load(p + e);
    }
    std::int64_t place = row * places;
    for (std::int64_t e = 0; e < shape.experts; ++e) {
      if (!is_taken(e)) continue;
      gpu.store(to.experts + place, static_cast<std::int32_t>(e));
      gpu.store(to.weights + place, shape.factor * (gpu.load(p + e) / whole));
      ++place;
    }
    if (!shape.shared) return;
    gpu.store(to.experts + place, static_cast<std::int32_t>(shape.experts));
    gpu.store(to.weights + place, shape.factor * gpu.load(p + shape.experts));
  }
};

// A thread's stretch of the places of all rows.
struct Stretch {
  std::int64_t begin, end;
  static SPILLWAY_GPU Stretch of(std::int64_t all, int thread) {
    const std::int64_t each = (all + kRoutingThreads - 1) / kRoutingThreads, begin = thread * each;
    return {begin < all ? begin : all, begin + each < all ? begin + each : all};
  }
};

// begins[e + 1] = the places of expert e. A block has an expert.
struct CountPlaces {
  static constexpr int kThreads = kRoutingThreads;
  static constexpr std::int64_t kShared = kThreads * sizeof(std::int32_t);
  std::int64_t all = 0;  // n * k
  const std::int32_t* experts = nullptr;
  std::int32_t* begins = nullptr;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    std::int32_t count = 0;
    for (std::int64_t place = gpu.thread(); place < all; place += kThreads) count += gpu.load(experts + place) == gpu.block();
    const auto counts = gpu.shared<std::int32_t>();
    gpu.store(counts + gpu.thread(), count);
    gpu.sync();
    if (gpu.thread() != 0) return;
    std::int32_t total = 0;
    for (int i = 0; i < kThreads; ++i) total += gpu.load(counts + i);
    gpu.store(begins + gpu.block() + 1, total);
  }
};

// Counts become begins; says whether a row's log-sum-exp is not finite. One block.
struct SumCounts {
  static constexpr int kThreads = kRoutingThreads;
  static constexpr std::int64_t kShared = kThreads * sizeof(std::int32_t);
  std::int64_t rows = 0, columns = 0, layer = 0;
  bool first_layer = false;
  const float* log_sums = nullptr;
  std::int32_t *begins = nullptr, *fault = nullptr;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    std::int32_t wrong = 0;
    for (std::int64_t row = gpu.thread(); row < rows; row += kThreads) wrong |= !(fabsf(gpu.load(log_sums + row)) < INFINITY);
    const auto all = gpu.shared<std::int32_t>();
    gpu.store(all + gpu.thread(), wrong);
    gpu.sync();
    if (gpu.thread() != 0) return;
    for (int i = 0; i < kThreads; ++i) wrong |= gpu.load(all + i);
    const std::int32_t before = first_layer ? 0 : gpu.load(fault);
    gpu.store(fault, before == 0 && wrong != 0 ? static_cast<std::int32_t>(layer + 1) : before);
    std::int32_t begin = 0;
    gpu.store(begins, begin);
    for (std::int64_t e = 1; e <= columns; ++e) {
      begin += gpu.load(begins + e);
      gpu.store(begins + e, begin);
    }
  }
};

// Writes the places of each expert, ascending. A block has an expert, a thread of it a stretch of all places.
struct SortPlaces {
  static constexpr int kThreads = kRoutingThreads;
  static constexpr std::int64_t kShared = kThreads * sizeof(std::int32_t);
  std::int64_t all = 0;
  const std::int32_t *experts = nullptr, *begins = nullptr;
  std::int32_t* places = nullptr;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const Stretch mine = Stretch::of(all, gpu.thread());
    std::int32_t count = 0;
    for (std::int64_t place = mine.begin; place < mine.end; ++place) count += gpu.load(experts + place) == gpu.block();
    const auto counts = gpu.shared<std::int32_t>();
    gpu.store(counts + gpu.thread(), count);
    gpu.sync();
    std::int32_t at = gpu.load(begins + gpu.block());
    for (int i = 0; i < gpu.thread(); ++i) at += gpu.load(counts + i);
    for (std::int64_t place = mine.begin; place < mine.end; ++place) {
      if (gpu.load(experts + place) == gpu.block()) gpu.store(places + at++, static_cast<std::int32_t>(place));
    }
  }
};

// totals[e] (=|+=) the rows of expert e, totals[E + e] (=|+=) its probabilities. A block has an expert.
struct AddTotals {
  static constexpr int kThreads = kRoutingThreads;
  static constexpr std::int64_t kShared = kThreads * sizeof(double);
  std::int64_t rows = 0, columns = 0, experts = 0;
  bool writes = false;
  const float* scores = nullptr;
  const std::int32_t* begins = nullptr;
  double* totals = nullptr;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t e = gpu.block();
    double sum = 0;
    for (std::int64_t row = gpu.thread(); row < rows; row += kThreads) sum += gpu.load(scores + row * columns + e);
    const auto sums = gpu.shared<double>();
    gpu.store(sums + gpu.thread(), sum);
    gpu.sync();
    if (gpu.thread() != 0) return;
    for (int i = 1; i < kThreads; ++i) sum += gpu.load(sums + i);
    const double count = gpu.load(begins + e + 1) - gpu.load(begins + e);
    gpu.store(totals + e, (writes ? 0.0 : gpu.load(totals + e)) + count);
    gpu.store(totals + experts + e, (writes ? 0.0 : gpu.load(totals + experts + e)) + sum);
  }
};

// The sum of squares of log_sums, the load of the layer's experts, and behind the last layer the losses of all. One block.
struct FinishTotals {
  static constexpr int kThreads = kRoutingThreads;
  static constexpr std::int64_t kShared = kThreads * sizeof(double);
  std::int64_t rows = 0, experts = 0, per_row = 0, layers = 0;
  bool begins_totals = false, ends = false;
  const float* log_sums = nullptr;
  const std::int32_t* begins = nullptr;
  double *totals = nullptr, *load = nullptr /*most, least, entropy*/, *balance_loss = nullptr, *z_loss = nullptr;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    double squares = 0;
    for (std::int64_t row = gpu.thread(); row < rows; row += kThreads) {
      const double x = gpu.load(log_sums + row);
      squares += x * x;
    }
    const auto sums = gpu.shared<double>();
    gpu.store(sums + gpu.thread(), squares);
    gpu.sync();
    if (gpu.thread() != 0) return;
    for (int i = 1; i < kThreads; ++i) squares += gpu.load(sums + i);
    double* const of_squares = totals + 2 * experts;
    gpu.store(of_squares, (begins_totals ? 0.0 : gpu.load(of_squares)) + squares);
    add_load(gpu);
    if (ends) add_losses(gpu);
  }

 private:
  SPILLWAY_GPU void add_load(const Gpu& gpu) const {
    double most = begins_totals ? 0.0 : gpu.load(load), least = begins_totals ? INFINITY : gpu.load(load + 1), entropy = 0;
    for (std::int64_t e = 0; e < experts; ++e) {
      const double share =
          static_cast<double>(gpu.load(begins + e + 1) - gpu.load(begins + e)) / static_cast<double>(rows * per_row);
      const double even = static_cast<double>(experts) * share;
      most = even > most ? even : most, least = even < least ? even : least;
      if (share > 0) entropy -= share * log(share);
    }
    const double of_even = experts > 1 ? log(static_cast<double>(experts)) : 1.0;
    gpu.store(load, most), gpu.store(load + 1, least);
    gpu.store(load + 2, (begins_totals ? 0.0 : gpu.load(load + 2)) + entropy / of_even / static_cast<double>(layers));
  }
  SPILLWAY_GPU void add_losses(const Gpu& gpu) const {
    const double all = static_cast<double>(layers * rows);
    double sum = 0;
    for (std::int64_t e = 0; e < experts; ++e) sum += gpu.load(totals + e) / all * (gpu.load(totals + experts + e) / all);
    gpu.store(balance_loss, static_cast<double>(experts) * sum);
    gpu.store(z_loss, gpu.load(totals + 2 * experts) / all);
  }
};

// The gradient of the scores before the softmax. A warp has a row.
template <typename T>
struct RouteBackward {
  // Without this the compiler would sooner spill than do with fewer blocks.
  static constexpr int kThreads = kRoutingThreads, kBlocks = 4;
  ops::RouterShape shape;
  std::int64_t columns = 0, places = 0;
  float balance = 0;  // what the total of an expert's rows, times batch_share, adds to the slope of its probability
  float z = 0;        // what log_sums, times batch_share, adds to that of all
  const float *dweights = nullptr, *scores = nullptr, *log_sums = nullptr, *batch_share = nullptr;
  const double* totals = nullptr;  // null: there is no balance loss
  ops::Routing routing;
  T* dlogits = nullptr;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t row = gpu.block() * kRowsOfRouting + gpu.warp(), first = row * places;
    if (row >= shape.rows) return;  // all lanes of the warp
    const float* const p = scores + row * columns;
    float whole = 1, along = 0;
    if (shape.normalised) {
      whole = 0;
      for (std::int64_t j = 0; j < shape.per_row; ++j) {
        whole += gpu.load(p + gpu.load(routing.experts + first + j));
        along += gpu.load(dweights + first + j) * gpu.load(routing.weights + first + j);
      }
    }
    const float share = batch_share == nullptr ? 0.0f : gpu.load(batch_share), of_count = share * balance;
    float mean = 0;
    for (std::int64_t e = gpu.lane(); e < shape.experts; e += 32)
      mean += slope(gpu, first, e, along, whole, of_count) * gpu.load(p + e);
    mean = warp_sum(gpu, mean);
    const float shift = share * z * gpu.load(log_sums + row) - mean;
    T* const d = dlogits + row * columns;
    for (std::int64_t e = gpu.lane(); e < shape.experts; e += 32)
      gpu.store(d + e, from_float<T>(gpu.load(p + e) * (slope(gpu, first, e, along, whole, of_count) + shift)));
    if (!shape.shared || gpu.lane() != 0) return;
    const float s = gpu.load(p + shape.experts);
    gpu.store(d + shape.experts, from_float<T>(s * (1.0f - s) * shape.factor * gpu.load(dweights + first + shape.per_row)));
  }

 private:
  // Of the e-th probability.
  SPILLWAY_GPU float slope(const Gpu& gpu, std::int64_t first, std::int64_t e, float along, float whole, float of_count) const {
    float sum = totals == nullptr ? 0.0f : of_count * static_cast<float>(gpu.load(totals + e));
    for (std::int64_t j = 0; j < shape.per_row; ++j) {
      if (gpu.load(routing.experts + first + j) == e) sum += (shape.factor * gpu.load(dweights + first + j) - along) / whole;
    }
    return sum;
  }
};

}  // namespace spillway::cuda
