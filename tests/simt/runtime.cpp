#include "tests/simt/runtime.h"

#include <fmt/core.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "memory/base/error.h"
#include "memory/runtime/arena.h"
#include "memory/runtime/twice_mapped.h"
#include "tests/simt/global_memory.h"
#include "tests/simt/lazy_device.h"
#include "tests/simt/machine.h"

namespace spillway::simt {
namespace {

constexpr int kNaN = 0xff;  // each byte of a NaN, in every type

// Allocations that runtimes have made and not yet ended, by address, with the address that the device's workers have. All devices
// of the process have one, as copies go between them, too.
class Registry {
 public:
  void add(std::byte* begin, Bytes bytes, std::byte* there) {
    const std::lock_guard lock(mutex_);
    ranges_.emplace(begin, Range{bytes, there});
  }
  void remove(std::byte* begin) {
    const std::lock_guard lock(mutex_);
    ranges_.erase(begin);
  }
  // Returns null if no allocation has all of it.
  std::byte* find(const std::byte* at, Bytes bytes) const {
    const std::lock_guard lock(mutex_);
    auto found = ranges_.upper_bound(const_cast<std::byte*>(at));
    if (found == ranges_.begin()) return nullptr;
    const auto& [begin, range] = *--found;
    return at - begin + bytes <= range.bytes ? range.there + (at - begin) : nullptr;
  }

 private:
  struct Range {
    Bytes bytes;
    std::byte* there;
  };
  mutable std::mutex mutex_;
  std::map<std::byte*, Range> ranges_;
};

Registry& all_memory() {
  static Registry all;
  return all;
}

struct DeviceState {
  explicit DeviceState(const DeviceOptions& options) : device(options.seed), registry(all_memory()), free(options.memory) {}
  LazyDevice device;
  Registry& registry;
  std::atomic<Bytes> free;
};

// Checks one end of a copy, at once and again when the copy's turn comes. Returns the address of its bytes.
std::byte* place_of(const Registry& registry, const std::byte* at, Bytes bytes, const char* what) {
  std::byte* const there = registry.find(at, bytes);
  if (there == nullptr)
    throw Error(fmt::format("the {} of a copy of {} bytes lies in no allocation of the runtime", what, bytes));
  return there;
}

class LazyEvent final : public Event {
 public:
  explicit LazyEvent(std::shared_ptr<DeviceState> state) : state_(std::move(state)) {}
  bool complete() const override { return state_->device.is_passed(*moments_); }
  void synchronize() override { state_->device.finish(*moments_); }
  const std::shared_ptr<LazyDevice::Moments>& moments() const { return moments_; }

 private:
  const std::shared_ptr<DeviceState> state_;
  const std::shared_ptr<LazyDevice::Moments> moments_ = std::make_shared<LazyDevice::Moments>();
};

class LazyStream final : public Stream, public Later {
 public:
  explicit LazyStream(std::shared_ptr<DeviceState> state) : state_(std::move(state)), stream_(*state_->device.open()) {}
  ~LazyStream() override { state_->device.close(stream_); }
  LazyStream(const LazyStream&) = delete;
  LazyStream& operator=(const LazyStream&) = delete;

  void run(void (*function)(void*), void* context) override {
    state_->device.enqueue(stream_, [=] { function(context); }, LazyDevice::Work::Kind::host);
  }
  void copy_async(std::byte* target, const std::byte* source, Bytes bytes) override {
    if (bytes < 0) throw Error(fmt::format("a copy of {} bytes", bytes));
    if (bytes == 0) return;
    const auto copy = [&registry = state_->registry, target, source, bytes](bool moves) {
      std::byte* const to = place_of(registry, target, bytes, "target");
      const std::byte* const from = place_of(registry, source, bytes, "source");
      if (moves) std::memmove(to, from, static_cast<std::size_t>(bytes));
    };
    copy(false);
    state_->device.enqueue(stream_, [copy] { copy(true); });
  }
  void record(Event& event) override { state_->device.record(stream_, dynamic_cast<LazyEvent&>(event).moments()); }
  void wait(Event& event) override { state_->device.wait(stream_, dynamic_cast<LazyEvent&>(event).moments()); }
  void synchronize() override { state_->device.finish(stream_); }
  void* native_handle() const noexcept override { return const_cast<Later*>(static_cast<const Later*>(this)); }
  void enqueue(std::function<void()> work) override { state_->device.enqueue(stream_, std::move(work)); }
  void enqueue_host(std::function<void()> work) override {
    state_->device.enqueue(stream_, std::move(work), LazyDevice::Work::Kind::host);
  }
  void finish() override { synchronize(); }

 private:
  const std::shared_ptr<DeviceState> state_;
  LazyDevice::Stream& stream_;
};

// Memory that the registry knows as long as it lives. It may outlive the runtime.
template <typename Memory>
class Known {
 public:
  Known(std::shared_ptr<DeviceState> state, Bytes bytes, const std::string& name)
      : state_(std::move(state)), memory_(bytes, name) {
    if (bytes == 0) return;
    if constexpr (kIsDevices) std::memset(there(), kNaN, static_cast<std::size_t>(bytes));
    state_->device.at_rest([&] {
      state_->registry.add(data(), bytes, there());
      if constexpr (kIsDevices) begin_allocation(data(), static_cast<std::size_t>(bytes), there());
    });
  }
  ~Known() {
    if (data() == nullptr) return;
    state_->device.at_rest([&] {
      state_->registry.remove(data());
      if constexpr (kIsDevices) end_allocation(data()), state_->free += memory_.bytes();
    });
  }
  Known(const Known&) = delete;
  Known& operator=(const Known&) = delete;

  std::byte* data() const {
    if constexpr (kIsDevices) {
      return memory_.host_view();
    } else {
      return memory_.data();
    }
  }

 private:
  static constexpr bool kIsDevices = std::is_same_v<Memory, TwiceMapped>;
  std::byte* there() const {
    if constexpr (kIsDevices) {
      return memory_.device_view();
    } else {
      return memory_.data();
    }
  }

  const std::shared_ptr<DeviceState> state_;
  Memory memory_;
};

class LazyRuntime final : public Runtime {
 public:
  explicit LazyRuntime(const DeviceOptions& options) : total_(options.memory), state_(std::make_shared<DeviceState>(options)) {}

  Allocation allocate(Tier tier, Bytes bytes, const std::string& name) override {
    SPILLWAY_CHECK(tier != Tier::nvme && bytes >= 0, "{}: {} bytes of {} asked of the device runtime", name, bytes,
                   name_of(tier));
    if (tier != Tier::device) return made<Arena>(bytes, name);
    if (state_->free.fetch_sub(bytes) < bytes) {
      state_->free += bytes;
      throw BudgetError(
          fmt::format("{}: {} bytes asked of the emulated device with {} of {} free", name, bytes, state_->free.load(), total_),
          "Give a smaller --device-memory.");
    }
    return made<TwiceMapped>(bytes, name);
  }
  // Kernels are launched with the address that everybody has, as CUDA's are.
  std::byte* device_pointer(std::byte* address) const override { return address; }
  void copy(std::byte* target, const std::byte* source, Bytes bytes) override {
    const auto there = [&](const std::byte* at) {
      std::byte* const known = state_->registry.find(at, bytes);
      return known != nullptr ? known : const_cast<std::byte*>(at);  // the caller's own, or a fault
    };
    state_->device.at_rest([&] { std::memmove(there(target), there(source), static_cast<std::size_t>(bytes)); });
  }
  bool host_sees_device() const noexcept override { return false; }
  void clear(std::byte* target, Bytes bytes) override {
    std::byte* const there = place_of(state_->registry, target, bytes, "place");
    state_->device.at_rest([&] { std::memset(there, 0, static_cast<std::size_t>(bytes)); });
  }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<LazyStream>(state_); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<LazyEvent>(state_); }
  std::string describe() const override {
    return fmt::format("an emulated device, {:.1f} GiB", static_cast<double>(total_) / static_cast<double>(kGiB));
  }
  MemoryInfo memory_info() const override { return {state_->free.load(), total_}; }

 private:
  template <typename Memory>
  Allocation made(Bytes bytes, const std::string& name) {
    auto known = std::make_unique<Known<Memory>>(state_, bytes, name);
    std::byte* const data = known->data();
    return {Allocation::Owner(known.release(), [](void* owned) { delete static_cast<Known<Memory>*>(owned); }), data, bytes,
            name};
  }

  const Bytes total_;
  const std::shared_ptr<DeviceState> state_;
};

}  // namespace

std::unique_ptr<Runtime> make_runtime(const DeviceOptions& options) { return std::make_unique<LazyRuntime>(options); }

}  // namespace spillway::simt
