// Compares the host's AdamW with a plain loop that reads and writes arrays of the same sizes, far beyond the last cache: bytes
// per second of both and their ratio. They run in turns because a machine's bandwidth drifts, and in short ones because other
// programs take its cores for milliseconds at a time. The best turn of each counts; the medians show whether both had the same
// luck. Small runs show the cost of a call.
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "memory/base/parallel.h"
#include "memory/runtime/arena.h"
#include "offload/host_adamw.h"

namespace spillway {
namespace {

constexpr std::int64_t kElements = std::int64_t{16} << 20;  // P; the arrays have 160 MiB and more in all
constexpr std::int64_t kTurn = std::int64_t{2} << 20;       // elements of a turn: about a millisecond
constexpr std::int64_t kChunk = 1 << 16;
constexpr int kTurns = 400;
constexpr AdamWSettings kSettings{.step = 5, .lr = 1e-4, .weight_decay = 0.1, .gradient_scale = 0.5, .seed = 1};

// Bytes for each element of weight (or its high half), low half, m, v and gradient; all but the gradient are also written.
struct Form {
  const char* name;
  int weight, low, moment, gradient;
  Bytes at_rest() const { return weight + low + 2 * moment; }
  Bytes moved() const { return 2 * at_rest() + gradient; }
};

struct Arrays {
  std::byte *weight, *low, *m, *v, *gradient;
  Arrays advanced(const Form& form, std::int64_t by) const {
    return {weight + by * form.weight, low + by * form.low, m + by * form.moment, v + by * form.moment,
            gradient + by * form.gradient};
  }
};

typedef std::uint32_t Words __attribute__((vector_size(32), aligned(32), may_alias));
constexpr std::int64_t kWordsElements = 32;  // elements of a vector, at one byte each

// One addition for each array written: the limit of the memory, with no arithmetic to hide.
template <int kWeight, int kLow, int kMoment, int kGradient>
__attribute__((target("avx2"))) void plain_loop(const Arrays& a, std::int64_t count) {
  const auto vectors = [](std::byte* p) { return reinterpret_cast<Words*>(p); };
  Words *weight = vectors(a.weight), *low = vectors(a.low), *m = vectors(a.m), *v = vectors(a.v);
  const Words* gradient = vectors(a.gradient);
  for (std::int64_t i = 0; i < count; i += kWordsElements) {
    Words g = gradient[0];
#pragma GCC unroll 4
    for (int k = 1; k < kGradient; ++k) g += gradient[k];
#pragma GCC unroll 4
    for (int k = 0; k < kWeight; ++k) weight[k] += g;
#pragma GCC unroll 4
    for (int k = 0; k < kLow; ++k) low[k] += g;
#pragma GCC unroll 4
    for (int k = 0; k < kMoment; ++k) m[k] += g;
#pragma GCC unroll 4
    for (int k = 0; k < kMoment; ++k) v[k] += g;
    weight += kWeight, low += kLow, m += kMoment, v += kMoment, gradient += kGradient;
  }
}

template <typename T>
T* as(std::byte* p) {
  return reinterpret_cast<T*>(p);
}
template <typename Moment>
SplitState<Moment> split(const Arrays& a) {
  return {as<BFloat16>(a.weight), as<std::int16_t>(a.low), as<Moment>(a.m), as<Moment>(a.v)};
}
template <typename State, typename Gradient>
void step(const ThreadPool& pool, const AdamWRun& run, const State& state, const Gradient* gradient) {
  host_adamw(pool, kSettings, run, source_of(state), gradient, state);
}

using Step = void (*)(const ThreadPool&, const AdamWRun&, const Arrays&);
using Plain = void (*)(const Arrays&, std::int64_t);
struct Case {
  Form form;
  Step step;
  Plain plain;
};
const Case kCases[] = {
    {{"exact", 2, 2, 4, 4},
     [](const ThreadPool& p, const AdamWRun& r, const Arrays& a) { step(p, r, split<float>(a), as<float>(a.gradient)); },
     plain_loop<2, 2, 4, 4>},
    {{"exact, bf16 gradient", 2, 2, 4, 2},
     [](const ThreadPool& p, const AdamWRun& r, const Arrays& a) { step(p, r, split<float>(a), as<BFloat16>(a.gradient)); },
     plain_loop<2, 2, 4, 2>},
    {{"compact", 2, 2, 2, 2},
     [](const ThreadPool& p, const AdamWRun& r, const Arrays& a) { step(p, r, split<BFloat16>(a), as<BFloat16>(a.gradient)); },
     plain_loop<2, 2, 2, 2>},
    {{"fp32", 4, 0, 4, 4},
     [](const ThreadPool& p, const AdamWRun& r, const Arrays& a) {
       step(p, r, Fp32State{as<float>(a.weight), as<float>(a.m), as<float>(a.v)}, as<float>(a.gradient));
     },
     plain_loop<4, 0, 4, 4>},
};

// Memory of one of the two loops: the plain loop leaves no sensible numbers.
class Memory {
 public:
  Memory(const ThreadPool& pool, const Form& form) : arena_(kElements * (form.at_rest() + form.gradient), "benchmark") {
    arena_.prefault(pool);
    std::fill_n(arena_.at(0), arena_.bytes(), std::byte{0x3c});  // 0.0115 in every type
    Bytes offset = 0;
    for (const auto& [array, bytes] :
         {std::pair(&arrays_.weight, form.weight), std::pair(&arrays_.low, form.low), std::pair(&arrays_.m, form.moment),
          std::pair(&arrays_.v, form.moment), std::pair(&arrays_.gradient, form.gradient)}) {
      *array = arena_.at(offset);
      offset += kElements * bytes;
    }
  }
  const Arrays& arrays() const { return arrays_; }

 private:
  Arena arena_;
  Arrays arrays_{};
};

template <typename Body>
double seconds_of(const Body& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void adamw(benchmark::State& state, const Case& c) {
  const ThreadPool pool(static_cast<int>(state.range(0)));
  const std::int64_t run = state.range(1);
  const Memory plain_memory(pool, c.form), memory(pool, c.form);
  std::vector<double> plain_s, adamw_s;
  std::int64_t begin = 0;
  for (auto _ : state) {
    const Arrays plain_arrays = plain_memory.arrays().advanced(c.form, begin);
    plain_s.push_back(seconds_of([&] {
      pool.parallel_for(kTurn / kChunk,
                        [&](std::int64_t task, int) { c.plain(plain_arrays.advanced(c.form, task * kChunk), kChunk); });
    }));
    adamw_s.push_back(seconds_of([&] {
      for (std::int64_t i = begin; i < begin + kTurn; i += run) {
        c.step(pool, {.begin = i, .count = run}, memory.arrays().advanced(c.form, i));
      }
    }));
    state.SetIterationTime(adamw_s.back());
    begin = (begin + kTurn) % kElements;
  }
  std::ranges::sort(plain_s);
  std::ranges::sort(adamw_s);
  const std::size_t middle = adamw_s.size() / 2;
  const double ratio = plain_s[0] / adamw_s[0], median_ratio = plain_s[middle] / adamw_s[middle];
  const auto bytes = static_cast<double>(kTurn * c.form.moved());
  state.counters["GB_per_s"] = bytes / adamw_s[0] * 1e-9;
  state.counters["plain_GB_per_s"] = bytes / plain_s[0] * 1e-9;
  state.counters["ratio"] = ratio;
  state.counters["median_ratio"] = median_ratio;
  state.counters["bytes_per_parameter"] = static_cast<double>(c.form.moved());
  state.SetLabel(fmt::format("{:.2f} of the plain loop, medians {:.2f}", ratio, median_ratio));
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  for (const spillway::Case& c : spillway::kCases) {
    benchmark::RegisterBenchmark(fmt::format("adamw/{}", c.form.name).c_str(), spillway::adamw, c)
        ->ArgNames({"threads", "run"})
        ->ArgsProduct({{1, 2}, {1 << 16, 1 << 18, spillway::kTurn}})
        ->Iterations(spillway::kTurns)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
