// Compares each CUDA kernel with its limit on this device: passes over memory with a copy; products and attention in TFLOP/s.
// Prints one JSON object on each line. Built and run by tools/gpu_check; sizes are those of a model with 8 B parameters.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

#include "models/cuda/cuda_backend.cuh"
#include "models/cuda/cuda_scratch.h"
#include "models/cuda/gemm.h"
#include "offload/cuda/adamw.cuh"
#include "offload/cuda/squares.cuh"

namespace spillway::cuda {
namespace {

void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  fmt::print(stderr, "{} failed: {}\n", call, cudaGetErrorString(error));
  std::exit(1);
}

class Memory {
 public:
  ~Memory() {
    for (void* block : blocks_) cudaFree(block);
  }
  // Filled with random numbers, small in every format and of both signs: with constants, products are faster than with a model's
  // numbers, because they draw less power.
  std::byte* get(Bytes bytes) {
    std::byte* block = nullptr;
    check(cudaMalloc(&block, static_cast<std::size_t>(std::max<Bytes>(bytes, 16))), "cudaMalloc");
    blocks_.push_back(block);
    fill(block, bytes);
    return block;
  }

 private:
  static void fill(std::byte* block, Bytes bytes) {
    static const std::vector<std::uint16_t> pattern = [] {
      std::vector<std::uint16_t> numbers(1 << 20);
      std::mt19937 random(1);
      // Read as bfloat16, or as the upper half of a float, the magnitudes are 2^-7 to 2^-3.
      for (std::uint16_t& number : numbers) number = static_cast<std::uint16_t>((random() & 0x81ff) | 0x3c00);
      return numbers;
    }();
    const auto size = static_cast<Bytes>(pattern.size() * sizeof(pattern[0]));
    for (Bytes at = 0; at < bytes; at += size) {
      check(cudaMemcpy(block + at, pattern.data(), static_cast<std::size_t>(std::min(size, bytes - at)), cudaMemcpyHostToDevice),
            "cudaMemcpy");
    }
  }

  std::vector<void*> blocks_;
};

class Clock {
 public:
  explicit Clock(cudaStream_t stream) : stream_(stream) {
    for (cudaEvent_t* event : {&begin_, &end_}) check(cudaEventCreate(event), "cudaEventCreate");
  }
  // Median seconds of twenty runs of the work, after three warm-up runs.
  double seconds(const std::function<void()>& work) {
    std::vector<float> times;
    for (int i = 0; i < 23; ++i) {
      check(cudaEventRecord(begin_, stream_), "cudaEventRecord");
      work();
      check(cudaEventRecord(end_, stream_), "cudaEventRecord");
      check(cudaEventSynchronize(end_), "cudaEventSynchronize");
      float ms = 0;
      check(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
      if (i >= 3) times.push_back(ms);
    }
    std::ranges::nth_element(times, times.begin() + 10);
    return static_cast<double>(times[10]) * 1e-3;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_{}, end_{};
};

class Bench {
 public:
  Bench() : gemm_(make_cublaslt_gemm(stream())), copy_rate_(measured_copy()) {}

  void kernels() {
    constexpr DType type = DType::bfloat16;
    constexpr std::int64_t n = 8192, H = 4096, I = 14336, R = 16384;
    using namespace spillway::kernels;
    run("norm", Norm{.type = type,
                     .rows = n,
                     .hidden = H,
                     .x = value(),
                     .weight = value(),
                     .residual = value(),
                     .y = value(),
                     .statistics = value()});
    run("norm_backward", NormBackward{.type = type,
                                      .gradient_type = type,
                                      .rows = n,
                                      .hidden = H,
                                      .dy = value(),
                                      .x = value(),
                                      .weight = value(),
                                      .statistics = value(),
                                      .residual_gradient = value(),
                                      .dx = value(),
                                      .dweight = value()});
    const ops::RopeShape rope{n, n, 32, 8, 128, 1e-6f};
    run("rotate", Rotate{type, rope, value(), value(), {}, {}, value(), value(), value(), value()});
    run("rotate_backward",
        RotateBackward{type, rope, value(), value(), {}, {}, value(), value(), value(), value(), value(), value()});
    run("activate", Activate{type, Activation::silu, true, n, I, value(), value()});
    run("activate_backward", ActivateBackward{type, Activation::silu, true, n, I, value(), value(), value(), value()});
    run("column_sums", ColumnSums{type, n, H, value(), value()});
    run("look_up", LookUp{type, n, H, R, {0, R}, 1.0f, value(), value(), value()});
    run("loss_tile", LossTile{type, n, {0, R}, true, 0.0f, value(), value(), value(), value(), value()});
    run("loss_backward", LossBackward{type, n, {0, R}, 0.0f, value(), value(), value(), value()});
    for (const std::int64_t D : {64, 128}) {
      const ops::AttentionShape shape{
          .sequences = 1, .queries = 8192, .keys = 8192, .heads = 4096 / D, .kv_heads = 1024 / D, .head_dim = D, .scale = 0.1f};
      const auto wide = [&] { return Rows{value(), H}; };
      const auto narrow = [&] { return Rows{value(), 1024}; };
      run(fmt::format("attend_d{}", D), Attend{type, shape, false, wide(), narrow(), narrow(), wide(), value()});
      run(fmt::format("attend_backward_d{}", D),
          AttendBackward{type, shape, wide(), narrow(), narrow(), wide(), wide(), wide(), narrow(), narrow(), value()});
    }
    run_product("gemm_forward", ops::linear_forward(type, n, H, I), false);
    run_product("gemm_forward_residual", ops::linear_forward(type, n, I, H, ops::Epilogue::residual), false);
    run_product("gemm_input_gradient", ops::linear_input_gradient(type, n, H, I, type), false);
    run_product("gemm_weight_gradient", ops::linear_weight_gradient(type, n, H, I, ops::Store::add), true);
  }

  void optimizer() {
    constexpr std::int64_t count = 64 << 20;
    Memory memory;
    const auto get = [&]<typename T>(std::type_identity<T>) {
      return reinterpret_cast<T*>(memory.get(count * static_cast<Bytes>(sizeof(T))));
    };
    const ExactState exact{get(std::type_identity<BFloat16>()), get(std::type_identity<std::int16_t>()),
                           get(std::type_identity<float>()), get(std::type_identity<float>())};
    const auto* gradient = get(std::type_identity<float>());
    report("adamw_exact", clock_.seconds([&] { device_adamw(queue_, {.lr = 1e-3}, {.count = count}, exact, gradient); }),
           28.0 * count, 0);
    const CompactState compact{exact.high, exact.low, get(std::type_identity<BFloat16>()), get(std::type_identity<BFloat16>())};
    const auto* halves = get(std::type_identity<BFloat16>());
    report("adamw_compact", clock_.seconds([&] { device_adamw(queue_, {.lr = 1e-3}, {.count = count}, compact, halves); }),
           18.0 * count, 0);
    auto* sums = reinterpret_cast<double*>(memory.get(count / kSquareStretch * 8));
    auto* rounded = reinterpret_cast<BFloat16*>(memory.get(count * 2));
    report("round_and_squares", clock_.seconds([&] {
      device_squares(queue_, SquareNodes<true, true>{count, kSquareStretch, gradient, rounded, sums});
    }),
           6.0 * count, 0);
    report("squares", clock_.seconds([&] {
      device_squares(queue_, SquareNodes<false, true>{count, kSquareStretch, gradient, nullptr, sums});
    }),
           4.0 * count, 0);
  }

 private:
  static cudaStream_t stream() { return cudaStreamPerThread; }

  double measured_copy() {
    constexpr Bytes bytes = kGiB;
    Memory memory;
    std::byte *from = memory.get(bytes), *to = memory.get(bytes);
    const double s = clock_.seconds([&] {
      check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, stream()), "cudaMemcpyAsync");
    });
    fmt::print("{{\"kernel\": \"copy\", \"bytes_per_s\": {:.4g}}}\n", 2.0 * static_cast<double>(bytes) / s);
    return 2.0 * static_cast<double>(bytes) / s;
  }

  // A new operand.
  Place value() { return {.space = Space::value, .index = values_++}; }
  // Measures the pinned algorithm beside the best of the library's proposals, including sums split over blocks. Also checks that
  // it gives the same bits on another stream with another workspace, while both run.
  void run_product(const std::string& name, const ops::GemmSpec& spec, bool adds) {
    constexpr int kProposals = 8;
    Memory memory;
    const Bytes of_input = size_of(spec.input), of_output = size_of(spec.output), bytes = spec.m * spec.n * of_output;
    const auto operands = [&] {
      return GemmOperands{.a = memory.get(spec.m * spec.k * of_input),
                          .b = memory.get(spec.k * spec.n * of_input),
                          .residual = spec.has_residual ? memory.get(bytes) : nullptr,
                          .c = memory.get(bytes),
                          .workspace = memory.get(Gemm::kWorkspaceBytes)};
    };
    const GemmOperands here = operands(), there = operands();
    gemm_->prepare(spec);
    const double pinned = clock_.seconds([&] { gemm_->run(spec, adds, here); });
    double best = pinned;
    for (int proposal = 0; proposal < kProposals; ++proposal) {
      try {
        const auto other = make_cublaslt_gemm(stream(), {.proposal = proposal, .any_order = true});
        other->prepare(spec);
        best = std::min(best, clock_.seconds([&] { other->run(spec, adds, here); }));
      } catch (const Error&) {
        break;  // the library has no more proposals
      }
    }
    const double flops = 2.0 * static_cast<double>(spec.m) * static_cast<double>(spec.n) * static_cast<double>(spec.k);
    fmt::print("{{\"kernel\": \"{}\", \"seconds\": {:.4g}, \"tflops\": {:.1f}, \"of_best\": {:.3f}, \"same_bits\": {}}}\n", name,
               pinned, flops / pinned * 1e-12, best / pinned, same_bits(spec, adds, here, there, bytes));
  }
  bool same_bits(const ops::GemmSpec& spec, bool adds, const GemmOperands& here, const GemmOperands& there, Bytes bytes) {
    cudaStream_t second = nullptr;
    check(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    const auto other = make_cublaslt_gemm(second, {.pinned = gemm_->identity()});
    other->prepare(spec);
    const auto size = static_cast<std::size_t>(bytes);
    check(cudaMemset(here.c, 0x3c, size), "cudaMemset"), check(cudaMemset(there.c, 0x3c, size), "cudaMemset");
    check(cudaMemset(there.workspace, 0xff, static_cast<std::size_t>(Gemm::kWorkspaceBytes)), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    gemm_->run(spec, adds, here), other->run(spec, adds, there);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    std::vector<char> one(size), two(size);
    check(cudaMemcpy(one.data(), here.c, size, cudaMemcpyDeviceToHost), "cudaMemcpy");
    check(cudaMemcpy(two.data(), there.c, size, cudaMemcpyDeviceToHost), "cudaMemcpy");
    check(cudaStreamDestroy(second), "cudaStreamDestroy");
    return one == two;
  }

  void run(const std::string& name, Kernel kernel) {
    Memory memory;
    std::vector<std::byte*> values(static_cast<std::size_t>(values_ + 1), nullptr);
    for (const OperandUse& operand : operands_of(kernel)) {
      std::byte*& at = values[static_cast<std::size_t>(operand.place->index)];
      if (at == nullptr) at = memory.get(operand.reach);
    }
    values.back() = memory.get(scratch_bytes(kernel));
    if (const auto* look_up = std::get_if<kernels::LookUp>(&kernel)) {
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(look_up->rows));
      std::mt19937 random(1);
      for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random() % static_cast<unsigned>(look_up->vocabulary));
      check(cudaMemcpy(values[static_cast<std::size_t>(look_up->tokens.index)], tokens.data(),
                       tokens.size() * sizeof(std::int32_t), cudaMemcpyHostToDevice),
            "cudaMemcpy");
    }
    const CallList list{{.kernel = kernel, .scratch = {.space = Space::value, .index = values_}}};
    CudaBackend backend(queue_, *gemm_);
    const PassMemory there{.values = values,
                           .words = reinterpret_cast<MicroBatchWords*>(memory.get(kMicroBatchWordsBytes)),
                           .first_micro_batch = false};
    const Work work = work_of(kernel);
    report(name, clock_.seconds([&] { backend.run(list, there); }), work.bytes, work.gemm_flops + work.attention_flops);
    values_ = 0;
  }

  void report(const std::string& name, double seconds, double bytes, double flops) const {
    if (flops > 0) {
      fmt::print("{{\"kernel\": \"{}\", \"seconds\": {:.4g}, \"tflops\": {:.1f}}}\n", name, seconds, flops / seconds * 1e-12);
    } else {
      fmt::print("{{\"kernel\": \"{}\", \"seconds\": {:.4g}, \"bytes_per_s\": {:.4g}, \"of_copy\": {:.3f}}}\n", name, seconds,
                 bytes / seconds, bytes / seconds / copy_rate_);
    }
  }

  Queue queue_{stream()};
  Clock clock_{stream()};
  std::unique_ptr<Gemm> gemm_;
  double copy_rate_;
  int values_ = 0;
};

}  // namespace
}  // namespace spillway::cuda

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // shows what was measured before a failure
  spillway::cuda::Bench bench;
  bench.kernels();
  bench.optimizer();
}
