// Measures attention in causal FLOP/s, forward and backward, in bf16 and fp32, by CPU time on one thread and by wall time on two.
// Causal FLOPs: a query meets (T+1)/2 keys on average; 2 products of 2 D FLOPs each in the forward, 5 in the backward.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "memory/base/parallel.h"
#include "models/cpu/attention/attention_ops.h"

namespace spillway {
namespace {

struct Size {
  const char* name;
  std::int64_t B, T, heads, kv_heads, D;
};
constexpr Size kSizes[] = {
    {"SmolLM2-135M_4x512", 4, 512, 9, 3, 64},
    {"Llama-1.2B_1x512", 1, 512, 32, 8, 64},
    {"Llama-8B_1x2048", 1, 2048, 32, 8, 128},
};

template <typename E>
constexpr DType kType = sizeof(E) == 4 ? DType::float32 : DType::bfloat16;

// Zeroed memory, on huge pages if there are any, like the arenas of a run.
template <typename T>
class Memory {
 public:
  explicit Memory(std::int64_t count)
      : count_(count),
        bytes_(static_cast<std::size_t>(round_up(count * static_cast<Bytes>(sizeof(T)), 2 * kMiB))),
        data_(static_cast<T*>(std::aligned_alloc(2 * kMiB, bytes_))) {
    madvise(data_.get(), bytes_, MADV_HUGEPAGE);
    std::memset(static_cast<void*>(data_.get()), 0, bytes_);
  }
  T* data() const { return data_.get(); }
  std::int64_t size() const { return count_; }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::int64_t count_;
  std::size_t bytes_;
  std::unique_ptr<T, Free> data_;
};

template <typename E>
struct Operands {
  explicit Operands(const Size& size, int threads)
      : shape{.sequences = size.B,
              .queries = size.T,
              .keys = size.T,
              .heads = size.heads,
              .kv_heads = size.kv_heads,
              .head_dim = size.D,
              .scale = 1.0f / std::sqrt(static_cast<float>(size.D))},
        stride((size.heads + 2 * size.kv_heads) * size.D),
        qkv(size.B * size.T * stride),
        dqkv(qkv.size()),
        o(size.B * size.T * size.heads * size.D),
        d_o(o.size()),
        lse(size.B * size.T * size.heads),
        scratch(std::max(ops::attention_forward_scratch_bytes(shape, kType<E>, threads),
                         ops::attention_backward_scratch_bytes(shape, kType<E>, threads))) {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    for (Memory<E>* memory : {&qkv, &d_o}) {
      for (std::int64_t i = 0; i < memory->size(); ++i) memory->data()[i] = from_float<E>(normal(generator));
    }
  }

  ops::AttentionInputs<E> in() const {
    const std::int64_t k = shape.heads * shape.head_dim, v = k + shape.kv_heads * shape.head_dim;
    return {{qkv.data(), stride}, {qkv.data() + k, stride}, {qkv.data() + v, stride}};
  }
  void forward(const ThreadPool& pool) {
    ops::attention_forward<E>(pool, shape, in(), {o.data(), shape.heads * shape.head_dim}, lse.data(), scratch.data());
  }
  void backward(const ThreadPool& pool) {
    const std::int64_t width = shape.heads * shape.head_dim, v = width + shape.kv_heads * shape.head_dim;
    ops::attention_backward<E>(pool, shape, in(), {{o.data(), width}, lse.data(), {d_o.data(), width}},
                               {{dqkv.data(), stride}, {dqkv.data() + width, stride}, {dqkv.data() + v, stride}}, scratch.data());
  }
  double forward_flops() const {
    const auto T = static_cast<double>(shape.queries);
    return 4.0 * static_cast<double>(shape.sequences * shape.heads * shape.head_dim) * T * T / 2;
  }

  ops::AttentionShape shape;
  std::int64_t stride;
  Memory<E> qkv, dqkv;  // [B*T, (Hq+2Hkv)*D]
  Memory<E> o, d_o;     // [B*T, Hq*D]
  Memory<float> lse;    // [B, Hq, T]
  Memory<std::byte> scratch;
};

enum class Pass { forward, backward };

template <typename E>
void run(benchmark::State& state, const Size& size, Pass pass, int threads) {
  const ThreadPool pool(threads);
  Operands<E> operands(size, threads);
  operands.forward(pool);
  for (auto _ : state) {
    if (pass == Pass::forward) {
      operands.forward(pool);
    } else {
      operands.backward(pool);
    }
  }
  const double flops = operands.forward_flops() * (pass == Pass::forward ? 1.0 : 2.5);
  state.counters["GFLOP"] = flops * 1e-9;
  state.counters["GFLOP/s"] =
      benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}

template <typename E>
void add(const char* type) {
  for (const Size& size : kSizes) {
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      for (const int threads : {1, 2}) {
        const std::string name = std::string(size.name) + "/" + type + (pass == Pass::forward ? "/forward" : "/backward") +
                                 "/threads:" + std::to_string(threads);
        auto* one =
            benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { run<E>(state, size, pass, threads); });
        one->Unit(benchmark::kMillisecond);
        if (threads > 1) one->UseRealTime();
      }
    }
  }
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  spillway::add<spillway::BFloat16>("bf16");
  spillway::add<float>("fp32");
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
