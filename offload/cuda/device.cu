// A GPU as a device: its runtime, the CUDA backend and the optimizer's kernels on one stream. Compiled by a host compiler: the
// same for the emulation (tests/simt/).
#include "offload/device.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>

#include "memory/base/error.h"
#include "models/cuda/cuda_backend.cuh"
#include "models/cuda/gemm.h"
#include "offload/cuda/device_rank_memory.cuh"
#include "offload/cuda/kernel_optimizer.cuh"
#include "offload/cuda/squares.cuh"

#if !defined(SPILLWAY_CUDA_CHIPS)
#define SPILLWAY_CUDA_CHIPS "chips that are not named"  // a build that is only made to look at the kernels
#endif
#if defined(__CUDACC__) && __has_include(<nvtx3/nvToolsExt.h>)
#define SPILLWAY_HAS_NVTX 1
#include <nvtx3/nvToolsExt.h>
#endif
#if !defined(__CUDACC__)
#include <simt/device_of_command.h>
#endif

namespace spillway {
namespace {

// Through memory of the host to which the device copies.
class StreamCopies final : public cuda::HostCopies {
 public:
  StreamCopies(Runtime& runtime, Stream& stream) : runtime_(runtime), stream_(stream) {}
  const std::int32_t* fetch(const std::int32_t* from, std::int64_t count) override {
    const Bytes bytes = count * static_cast<Bytes>(sizeof(std::int32_t));
    if (!room_ || room_->bytes() < bytes) room_ = runtime_.allocate(Tier::host, bytes, "rows of experts");
    stream_.copy_async(room_->data(), reinterpret_cast<const std::byte*>(from), bytes);
    stream_.synchronize();
    return reinterpret_cast<const std::int32_t*>(room_->data());
  }

 private:
  Runtime& runtime_;
  Stream& stream_;
  std::optional<Allocation> room_;
};

class GpuDevice final : public Device {
 public:
  explicit GpuDevice(std::unique_ptr<Runtime> runtime)
      : runtime_(std::move(runtime)),
        stream_(runtime_->make_stream()),
#if defined(__CUDACC__)
        queue_(static_cast<cudaStream_t>(stream_->native_handle())),
        gemm_(cuda::make_cublaslt_gemm(stream_->native_handle())),
#else
        queue_(stream_->native_handle()),
        gemm_(std::make_unique<simt::HostGemm>(queue_)),
#endif
        copies_(*runtime_, *stream_),
        backend_(queue_, *gemm_, &copies_) {
  }

  Runtime& runtime() override { return *runtime_; }
  Backend& backend() override { return backend_; }
  Stream* compute_stream() override { return stream_.get(); }
  std::unique_ptr<KernelOptimizer> make_optimizer(const UnitGraph& graph, const Choices& choices) override {
    return std::make_unique<cuda::StreamOptimizer>(*runtime_, queue_, graph, choices);
  }
  std::unique_ptr<RankMemory> make_rank_memory(const ThreadPool&) override {
    return std::make_unique<cuda::DeviceRankMemory>(*runtime_);
  }
#if SPILLWAY_HAS_NVTX
  void begin_range(const std::string& name) override { nvtxRangePushA(name.c_str()); }
  void end_range() override { nvtxRangePop(); }
#endif
  std::string identity() const override { return gemm_->identity(); }

 private:
  const std::unique_ptr<Runtime> runtime_;
  const std::unique_ptr<Stream> stream_;
  cuda::Queue queue_;
  const std::unique_ptr<cuda::Gemm> gemm_;
  StreamCopies copies_;
  cuda::CudaBackend backend_;
};

}  // namespace

#if defined(__CUDACC__)
namespace {

// True when the program's code, whose chips SPILLWAY_CUDA_CHIPS names ("sm_80 sm_90"), runs on a chip. Code runs on later minor
// versions of its major version; Hopper's runs on that chip alone; code for 80 also exists in a form that drivers translate.
bool runs_on(int capability) {
  std::istringstream chips(SPILLWAY_CUDA_CHIPS);
  for (std::string word; chips >> word;) {
    const int chip = std::atoi(word.c_str() + std::min<std::size_t>(3, word.size()));
    if (chip == 80 && capability >= 80) return true;
    if (chip == 90 ? capability == 90 : chip / 10 == capability / 10 && chip <= capability) return true;
  }
  return false;
}

// Lets the current device copy from its peers directly. Where it cannot, the driver carries copies through the host.
void reach(int index, std::span<const int> peers) {
  for (const int peer : peers) {
    int can = 0;
    if (peer == index || cudaDeviceCanAccessPeer(&can, index, peer) != cudaSuccess || can == 0) continue;
    cudaDeviceEnablePeerAccess(peer, 0);  // it may be on already
  }
  cudaGetLastError();
}

}  // namespace

Gpus find_gpus() {
  Gpus found;
  int driver = 0, count = 0;
  const cudaError_t has_driver = cudaDriverGetVersion(&driver);
  if (has_driver != cudaSuccess || driver == 0) return {.usable = {}, .why_none = "this machine has no NVIDIA driver"};
  const std::string version = fmt::format("CUDA {}.{}", driver / 1000, driver % 1000 / 10);
  if (driver < CUDART_VERSION / 1000 * 1000) {
    return {
        .usable = {},
        .why_none = fmt::format("the NVIDIA driver is one for {}, and this program needs one for CUDA {} (driver 580 or later)",
                                version, CUDART_VERSION / 1000)};
  }
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0) {
    cudaGetLastError();
    return {.usable = {},
            .why_none = count == 0 && error == cudaSuccess ? "this machine has no NVIDIA GPU" : cudaGetErrorString(error)};
  }
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) {
      cudaGetLastError();
      continue;
    }
    const int capability = 10 * properties.major + properties.minor;
    if (!runs_on(capability)) {
      found.why_none = fmt::format("{} has compute capability {}.{}, and this program has kernels for {}", properties.name,
                                   properties.major, properties.minor, SPILLWAY_CUDA_CHIPS);
      continue;
    }
    found.usable.push_back({.index = index, .name = properties.name, .capability = capability, .driver = version});
  }
  if (found.usable.empty() && found.why_none.empty()) found.why_none = "no NVIDIA GPU of this machine answers";
  return found;
}

MemoryInfo free_of_gpu(int index) { return Runtime::make_cuda(index)->memory_info(); }
const NcclLibrary& nccl_library() {
  static const NcclLibrary library = open_nccl();  // constant: opened once
  return library;
}

std::unique_ptr<Device> make_cuda_device(int index, std::span<const int> peers) {
  auto runtime = Runtime::make_cuda(index);
  runtime->enter();
  reach(index, peers);
  cudaFuncAttributes attributes{};
  if (const cudaError_t error = cudaFuncGetAttributes(&attributes, cuda::run_kernel<cuda::NormOfBlocks>); error != cudaSuccess) {
    cudaGetLastError();
    throw InputError(fmt::format("--device cuda:{}: {}, and this program has kernels for {}: {}", index, runtime->describe(),
                                 SPILLWAY_CUDA_CHIPS, cudaGetErrorString(error)),
                     "Build it for this chip (cmake -DSPILLWAY_CUDA_CHIPS=...), or use --device cpu.");
  }
  return std::make_unique<GpuDevice>(std::move(runtime));
}

#else

Gpus find_gpus() { return simt::emulated_gpus(); }
MemoryInfo free_of_gpu(int) { return simt::emulated_memory(); }
const NcclLibrary& nccl_library() { return simt::nccl_twin(); }
std::unique_ptr<Device> make_cuda_device(int index, std::span<const int>) {
  return std::make_unique<GpuDevice>(simt::emulated_runtime(index));
}

#endif

}  // namespace spillway
