// The host's AdamW against a plain loop over the same arrays, read and written alike, far beyond the last cache: bytes per second
// of both and their ratio. They run in turns because a machine's bandwidth drifts; the best turn of each counts.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "memory/arena.h"
#include "memory/parallel.h"
#include "offload/host_adamw.h"

namespace spillway {
namespace {

constexpr std::int64_t kElements = std::int64_t{32} << 20;  // P: the smallest array has 64 MiB
constexpr std::int64_t kChunk = 1 << 16;
constexpr AdamWSettings kSettings{.step = 5, .lr = 1e-4, .weight_decay = 0.1, .gradient_scale = 0.5, .seed = 1};

// Bytes an element of weight (or its high half), low half, m, v and gradient; all but the gradient are written too.
struct Form {
  const char* name;
  int weight, low, moment, gradient;
  Bytes at_rest() const { return weight + low + 2 * moment; }
  Bytes moved() const { return 2 * at_rest() + gradient; }
};

struct Arrays {
  std::byte *weight, *low, *m, *v, *gradient;
  Arrays advanced(const Form& form, std::int64_t by) const {
    return {weight + by * form.weight, low + by * form.low, m + by * form.moment, v + by * form.moment, gradient + by * form.gradient};
  }
};

typedef std::uint32_t Words __attribute__((vector_size(32), aligned(32), may_alias));
constexpr std::int64_t kWordsElements = 32;  // elements of a vector, at one byte each

// One add for each array written: what the memory allows and no arithmetic hides.
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
void step(const ThreadPool& pool, const State& state, const Gradient* gradient) {
  host_adamw(pool, kSettings, {.count = kElements}, source_of(state), gradient, state);
}

using Step = void (*)(const ThreadPool&, const Arrays&);
using Plain = void (*)(const Arrays&, std::int64_t);
struct Case {
  Form form;
  Step step;
  Plain plain;
};
const Case kCases[] = {
    {{"exact", 2, 2, 4, 4}, [](const ThreadPool& p, const Arrays& a) { step(p, split<float>(a), as<float>(a.gradient)); }, plain_loop<2, 2, 4, 4>},
    {{"exact, bf16 gradient", 2, 2, 4, 2},
     [](const ThreadPool& p, const Arrays& a) { step(p, split<float>(a), as<BFloat16>(a.gradient)); },
     plain_loop<2, 2, 4, 2>},
    {{"compact", 2, 2, 2, 2}, [](const ThreadPool& p, const Arrays& a) { step(p, split<BFloat16>(a), as<BFloat16>(a.gradient)); }, plain_loop<2, 2, 2, 2>},
    {{"fp32", 4, 0, 4, 4},
     [](const ThreadPool& p, const Arrays& a) { step(p, Fp32State{as<float>(a.weight), as<float>(a.m), as<float>(a.v)}, as<float>(a.gradient)); },
     plain_loop<4, 0, 4, 4>},
};

template <typename Body>
double seconds_of(const Body& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void adamw(benchmark::State& state, const Case& c) {
  const ThreadPool pool(static_cast<int>(state.range(0)));
  const Form& form = c.form;
  const Arena arena(kElements * (form.at_rest() + form.gradient), "benchmark");
  arena.prefault(pool);
  Arrays arrays{};
  Bytes offset = 0;
  for (const auto& [array, bytes] : {std::pair(&arrays.weight, form.weight), std::pair(&arrays.low, form.low), std::pair(&arrays.m, form.moment),
                                     std::pair(&arrays.v, form.moment), std::pair(&arrays.gradient, form.gradient)}) {
    *array = arena.at(offset);
    offset += kElements * bytes;
  }
  const auto run_plain = [&] {
    pool.parallel_for(kElements / kChunk, [&](std::int64_t task, int) { c.plain(arrays.advanced(form, task * kChunk), kChunk); });
  };
  // The plain loop leaves no sensible numbers, so each update is given its own: 0.0115 in every type.
  double best_plain = 1e9, best = 1e9;
  const auto fill = [&] {
    pool.parallel_for(arena.bytes() / kMiB, [&](std::int64_t task, int) { std::fill_n(arena.at(task * kMiB), kMiB, std::byte{0x3c}); });
  };
  for (auto _ : state) {
    best_plain = std::min(best_plain, seconds_of(run_plain));
    fill();
    const double seconds = seconds_of([&] { c.step(pool, arrays); });
    best = std::min(best, seconds);
    state.SetIterationTime(seconds);
  }
  const double bytes = static_cast<double>(kElements * form.moved());
  state.counters["GB_per_s"] = bytes / best * 1e-9;
  state.counters["plain_GB_per_s"] = bytes / best_plain * 1e-9;
  state.counters["ratio"] = best_plain / best;
  state.counters["bytes_per_parameter"] = static_cast<double>(form.moved());
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  for (const spillway::Case& c : spillway::kCases) {
    benchmark::RegisterBenchmark(fmt::format("adamw/{}/threads", c.form.name).c_str(), spillway::adamw, c)
        ->Arg(1)->Arg(2)->Iterations(20)->UseManualTime()->Unit(benchmark::kMillisecond);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
