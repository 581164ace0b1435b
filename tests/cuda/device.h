// The device that kernels are tested on: the emulated one or, where nvcc compiles the tests (tools/gpu_check), a GPU whose memory
// the host sees, too. Also the device's runtime, whose memory the host does not see.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "memory/runtime/runtime.h"
#include "models/cuda/gemm.h"
#include "models/cuda/gpu.cuh"

#if defined(__CUDACC__)

namespace spillway::device {

inline constexpr bool kCounts = false;  // bytes and bank conflicts

inline void check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) throw Error(1, fmt::format("{} failed: {}", call, cudaGetErrorString(error)), "");
}

struct Options {
  std::uint64_t seed = 1;  // for the emulation alone: a GPU has an order of its own
  bool counts = false;
  int threads = 1;
};
struct Counts {
  std::int64_t read_bytes = 0, written_bytes = 0, requested_bytes = 0, moved_bytes = 0, shared_requests = 0, bank_conflicts = 0;
};

// Memory of the device, filled with NaN.
template <typename T>
class Buffer {
 public:
  explicit Buffer(std::size_t elements) : elements_(elements) {
    check(cudaMallocManaged(&data_, std::max<std::size_t>(1, elements * sizeof(T))), "cudaMallocManaged");
    std::fill_n(reinterpret_cast<unsigned char*>(data_), elements * sizeof(T), static_cast<unsigned char>(0xff));
  }
  explicit Buffer(std::span<const T> content) : Buffer(content.size()) { std::copy(content.begin(), content.end(), data_); }
  ~Buffer() { cudaFree(data_); }
  Buffer(Buffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)), elements_(other.elements_) {}
  Buffer& operator=(Buffer&&) = delete;

  T* data() const { return data_; }
  std::span<T> all() const { return {data_, elements_}; }

 private:
  T* data_ = nullptr;
  std::size_t elements_;
};

class Queue : public cuda::Queue {
 public:
  explicit Queue(const Options& = {}) : cuda::Queue(made()) {}
  ~Queue() { cudaStreamDestroy(stream()); }
  Queue(Queue&&) = delete;
  // When this returns, the host may look at memory again.
  void synchronize() { check(cudaStreamSynchronize(stream()), "cudaStreamSynchronize"); }
  Counts counts() const { return {}; }
  void clear_counts() {}

 private:
  static cudaStream_t made() {
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return stream;
  }
};

inline std::unique_ptr<cuda::Gemm> make_gemm(cuda::Queue& queue) { return cuda::make_cublaslt_gemm(queue.stream()); }
inline std::unique_ptr<Runtime> make_runtime(std::uint64_t /*seed*/) { return Runtime::make_cuda(0); }
inline cuda::Queue queue_of(Stream& stream) { return cuda::Queue(static_cast<cudaStream_t>(stream.native_handle())); }

}  // namespace spillway::device

#else

#include "tests/simt/host_gemm.h"
#include "tests/simt/machine.h"
#include "tests/simt/runtime.h"

namespace spillway::device {

inline constexpr bool kCounts = true;
using simt::Buffer;
using simt::Counts;
using simt::Options;
using simt::Queue;
inline std::unique_ptr<cuda::Gemm> make_gemm(Queue& queue) { return std::make_unique<simt::HostGemm>(queue); }
inline std::unique_ptr<Runtime> make_runtime(std::uint64_t seed) { return simt::make_runtime({.seed = seed}); }
inline Queue queue_of(Stream& stream) { return Queue(stream.native_handle()); }

}  // namespace spillway::device

#endif
