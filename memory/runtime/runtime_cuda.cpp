// The device runtime on CUDA: a thin layer over the runtime library. Every call names itself in its error.
#include <cuda_runtime_api.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "memory/base/error.h"
#include "memory/base/parallel.h"
#include "memory/runtime/arena.h"
#include "memory/runtime/runtime.h"

namespace spillway {
namespace {

std::string reason(cudaError_t error) {
  return fmt::format("{} (CUDA error {})", cudaGetErrorString(error), static_cast<int>(error));
}

// True for errors of a device that is broken or gone; all others are our bug.
bool is_of_hardware(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorDevicesUnavailable:
    case cudaErrorNoDevice:
    case cudaErrorSystemNotReady:
    case cudaErrorUnknown:  // the driver reports this for a device that fell off its bus
      return true;
    default: return false;
  }
}

// Throws an error that the device reports while training: our bug or a broken device; either way the run cannot go on.
void check(cudaError_t error, const char* call, Bytes bytes = 0) {
  if (error == cudaSuccess) return;
  const std::string what = bytes > 0 ? fmt::format("{} of {} bytes", call, bytes) : std::string(call);
  throw Error(is_of_hardware(error) ? kExitIo : kExitBug, fmt::format("{} failed: {}", what, reason(error)),
              "See `nvidia-smi` and the kernel's log for the device's state, or use --device cpu.");
}

void log(cudaError_t error, const char* call) noexcept {
  if (error != cudaSuccess) fmt::print(stderr, "warning: {} failed: {}\n", call, reason(error));
}

// Each thread has its own current device, and several threads call.
void select_device(int device) { check(cudaSetDevice(device), "cudaSetDevice"); }

class StreamHandle {
 public:
  explicit StreamHandle(int device) {
    select_device(device);
    // Not blocking: it does not wait for the default stream, which nothing here uses.
    check(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  ~StreamHandle() {
    if (handle_ == nullptr) return;
    log(cudaStreamSynchronize(handle_), "cudaStreamSynchronize");
    log(cudaStreamDestroy(handle_), "cudaStreamDestroy");
  }
  StreamHandle(StreamHandle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  StreamHandle& operator=(StreamHandle&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  cudaStream_t get() const noexcept { return handle_; }

 private:
  cudaStream_t handle_ = nullptr;
};

class EventHandle {
 public:
  explicit EventHandle(int device) {
    select_device(device);
    // Waiting threads sleep: spinning ones would take the processors from updates on the host.
    check(cudaEventCreateWithFlags(&handle_, cudaEventDisableTiming | cudaEventBlockingSync), "cudaEventCreateWithFlags");
  }
  ~EventHandle() {
    if (handle_ != nullptr) log(cudaEventDestroy(handle_), "cudaEventDestroy");
  }
  EventHandle(EventHandle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  EventHandle& operator=(EventHandle&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  cudaEvent_t get() const noexcept { return handle_; }

 private:
  cudaEvent_t handle_ = nullptr;
};

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(int device) : device_(device), handle_(device) {}

  bool complete() const override {
    select_device(device_);
    const cudaError_t state = cudaEventQuery(handle_.get());
    if (state == cudaErrorNotReady) return false;
    check(state, "cudaEventQuery");
    return true;
  }
  void synchronize() override {
    select_device(device_);
    check(cudaEventSynchronize(handle_.get()), "cudaEventSynchronize");
  }
  // CUDA itself would allow another stream; the CPU's runtime does not, and a program must mean the same on both.
  cudaEvent_t record_on(const void* stream) {
    const void* before = nullptr;
    const bool first = stream_.compare_exchange_strong(before, stream);
    SPILLWAY_CHECK(first || before == stream, "an event was recorded on a second stream");
    return handle_.get();
  }
  cudaEvent_t get() const noexcept { return handle_.get(); }

 private:
  int device_;
  EventHandle handle_;
  std::atomic<const void*> stream_{nullptr};
};

// Addresses inside pinned memory at which one registration ends and the next begins: no copy may cross them.
class PinnedBorders {
 public:
  void add(const std::byte* at) {
    const std::lock_guard lock(mutex_);
    borders_.push_back(at);
    any_.store(true, std::memory_order_release);
  }
  void remove(const std::byte* at) {
    const std::lock_guard lock(mutex_);
    std::erase(borders_, at);
  }
  // Bytes from `begin` to the first border behind it, at most `bytes`.
  Bytes until_border(const std::byte* begin, Bytes bytes) const {
    if (!any_.load(std::memory_order_acquire)) return bytes;
    const std::lock_guard lock(mutex_);
    for (const std::byte* border : borders_)
      if (border > begin && border < begin + bytes) bytes = border - begin;
    return bytes;
  }

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> any_{false};
  std::vector<const std::byte*> borders_;
};

class CudaStream final : public Stream {
 public:
  CudaStream(int device, std::shared_ptr<PinnedBorders> borders)
      : device_(device), handle_(device), borders_(std::move(borders)) {}

  void run(void (*function)(void*), void* context) override {
    select_device(device_);
    check(cudaLaunchHostFunc(handle_.get(), function, context), "cudaLaunchHostFunc");
  }
  void copy_async(std::byte* target, const std::byte* source, Bytes bytes) override {
    SPILLWAY_CHECK(bytes >= 0, "a copy of {} bytes", bytes);
    if (bytes > 0) select_device(device_);
    while (bytes > 0) {
      const Bytes part = borders_->until_border(source, borders_->until_border(target, bytes));
      check(cudaMemcpyAsync(target, source, static_cast<std::size_t>(part), cudaMemcpyDefault, handle_.get()), "cudaMemcpyAsync",
            part);
      target += part, source += part, bytes -= part;
    }
  }
  void record(Event& event) override {
    select_device(device_);
    check(cudaEventRecord(dynamic_cast<CudaEvent&>(event).record_on(this), handle_.get()), "cudaEventRecord");
  }
  void wait(Event& event) override {
    select_device(device_);
    check(cudaStreamWaitEvent(handle_.get(), dynamic_cast<CudaEvent&>(event).get(), 0), "cudaStreamWaitEvent");
  }
  void synchronize() override {
    select_device(device_);
    check(cudaStreamSynchronize(handle_.get()), "cudaStreamSynchronize");
  }
  void* native_handle() const noexcept override { return handle_.get(); }

 private:
  int device_;
  StreamHandle handle_;
  const std::shared_ptr<PinnedBorders> borders_;
};

// Text that says which limit may have kept so many bytes from being pinned.
std::string what_binds(Bytes bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY) {
    return "Locked memory has no limit here: the machine has no more to pin.";
  }
  return fmt::format(
      "The limit of locked memory is {} bytes: where that is what binds, `ulimit -l {}` raises it, or memlock in "
      "/etc/security/limits.conf.",
      limit.rlim_cur, (bytes + kKiB - 1) / kKiB);
}

// Ordinary memory on huge pages, registered with CUDA: exactly its size, while cudaMallocHost rounds up as it likes. All threads
// back its pages before that: the driver would fault them in one by one.
class PinnedMemory {
 public:
  // The driver refuses one registration of 512 GiB.
  static constexpr Bytes kMostAtOnce = 256 * kGiB;

  PinnedMemory(Bytes bytes, const std::string& name, std::shared_ptr<PinnedBorders> borders)
      : arena_(bytes, name), borders_(std::move(borders)) {
    arena_.prefault(ThreadPool(static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))));
    while (registered_ < bytes) {
      const Bytes part = std::min(kMostAtOnce, bytes - registered_);
      const cudaError_t error =
          cudaHostRegister(arena_.data() + registered_, static_cast<std::size_t>(part), cudaHostRegisterPortable);
      if (error != cudaSuccess) {
        cudaGetLastError();  // the error is sticky until it is read
        end();
        throw BudgetError(fmt::format("{}: cudaHostRegister of {} bytes of host memory failed: {}", name, bytes, reason(error)),
                          "Give a smaller --host-memory. " + what_binds(bytes));
      }
      if (registered_ > 0) borders_->add(arena_.data() + registered_);
      registered_ += part;
    }
  }
  ~PinnedMemory() { end(); }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  std::byte* data() const noexcept { return arena_.data(); }

 private:
  void end() noexcept {
    for (Bytes at = 0; at < registered_; at += kMostAtOnce) {
      log(cudaHostUnregister(arena_.data() + at), "cudaHostUnregister");
      if (at > 0) borders_->remove(arena_.data() + at);
    }
    registered_ = 0;
  }

  Arena arena_;
  const std::shared_ptr<PinnedBorders> borders_;
  Bytes registered_ = 0;
};

class CudaRuntime final : public Runtime {
 public:
  CudaRuntime(int device, const cudaDeviceProp& properties) : device_(device), name_(properties.name) {
    major_ = properties.major;
    minor_ = properties.minor;
  }

  Allocation allocate(Tier tier, Bytes bytes, const std::string& name) override {
    SPILLWAY_CHECK(in_memory(tier) && bytes >= 0, "{}: {} bytes of {} asked of the device runtime", name, bytes, name_of(tier));
    select_device(device_);
    switch (tier) {  // any further tier needs its own kind of memory here
      case Tier::device: return allocate_on_device(bytes, name);
      case Tier::host:
      case Tier::nvme: break;
    }
    auto pinned = std::make_unique<PinnedMemory>(bytes, name, borders_);
    std::byte* data = pinned->data();
    return {Allocation::Owner(pinned.release(), [](void* owned) { delete static_cast<PinnedMemory*>(owned); }), data, bytes,
            name};
  }
  std::byte* device_pointer(std::byte* address) const override { return address; }
  bool host_sees_device() const noexcept override { return false; }
  void enter() override { select_device(device_); }
  void copy(std::byte* target, const std::byte* source, Bytes bytes) override {
    // On a stream of its own: the legacy stream would wait for all others.
    copies_.copy_async(target, source, bytes);
    copies_.synchronize();
  }
  void clear(std::byte* target, Bytes bytes) override {
    if (bytes == 0) return;
    select_device(device_);
    check(cudaMemsetAsync(target, 0, static_cast<std::size_t>(bytes), static_cast<cudaStream_t>(copies_.native_handle())),
          "cudaMemsetAsync", bytes);
    copies_.synchronize();
  }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<CudaStream>(device_, borders_); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<CudaEvent>(device_); }
  std::string describe() const override {
    return fmt::format("CUDA device {}: {}, compute capability {}.{}, {:.1f} GiB", device_, name_, major_, minor_,
                       static_cast<double>(memory_info().total) / static_cast<double>(kGiB));
  }
  MemoryInfo memory_info() const override {
    select_device(device_);
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return {static_cast<Bytes>(free), static_cast<Bytes>(total)};
  }

 private:
  Allocation allocate_on_device(Bytes bytes, const std::string& name) {
    void* data = nullptr;
    const cudaError_t error = bytes == 0 ? cudaSuccess : cudaMalloc(&data, static_cast<std::size_t>(bytes));
    if (error != cudaSuccess) {
      cudaGetLastError();
      const MemoryInfo info = memory_info();
      throw BudgetError(fmt::format("{}: cudaMalloc of {} bytes failed with {} of {} bytes free: {}", name, bytes, info.free,
                                    info.total, reason(error)),
                        "Give a smaller --device-memory, or end what else uses the device.");
    }
    return {Allocation::Owner(data, [](void* owned) { log(cudaFree(owned), "cudaFree"); }), static_cast<std::byte*>(data), bytes,
            name};
  }

  int device_;
  std::string name_;
  int major_ = 0, minor_ = 0;
  const std::shared_ptr<PinnedBorders> borders_ = std::make_shared<PinnedBorders>();
  CudaStream copies_{device_, borders_};  // for copy() and clear(), whose callers wait
};

// Throws an InputError: while the device is being found, the user can mend a failure.
void check_usable(cudaError_t error, const char* call, int index) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw InputError(fmt::format("CUDA device {} cannot be used: {}: {}", index, call, reason(error)),
                   "See whether `nvidia-smi` lists the device, or use --device cpu.");
}

}  // namespace

std::unique_ptr<Runtime> Runtime::make_cuda(int index) {
  int devices = 0;
  check_usable(cudaGetDeviceCount(&devices), "cudaGetDeviceCount", index);
  if (index < 0 || index >= devices) {
    throw InputError(
        fmt::format("CUDA device {} does not exist: this machine has {}", index, devices),
        devices == 0 ? "Use --device cpu." : fmt::format("Use --device cuda:0 to cuda:{}, or --device cpu.", devices - 1));
  }
  cudaDeviceProp properties{};
  // Threads that wait for the device sleep.
  check_usable(cudaInitDevice(index, cudaDeviceScheduleBlockingSync, cudaInitDeviceFlagsAreValid), "cudaInitDevice", index);
  check_usable(cudaSetDevice(index), "cudaSetDevice", index);
  check_usable(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties", index);
  return std::make_unique<CudaRuntime>(index, properties);
}

}  // namespace spillway
