// The CPU as a device: a stream is a thread with a ring of operations, an event is two counters, memory is an arena; the memory
// of a device that is apart is mapped twice.
#include <sys/sysinfo.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "memory/base/error.h"
#include "memory/runtime/arena.h"
#include "memory/runtime/runtime.h"
#include "memory/runtime/twice_mapped.h"

namespace spillway {

Allocation::Allocation(Owner owner, std::byte* data, Bytes bytes, std::string name)
    : owner_(std::move(owner)), data_(data), bytes_(bytes), name_(std::move(name)) {}

namespace {

// Counts wrap and are compared by their distance; the kernel's own wait works on 32 bits.
struct EventCounts {
  std::atomic<const void*> stream{nullptr};
  std::atomic<std::uint32_t> issued{0}, completed{0};

  bool reached(std::uint32_t ticket) const noexcept {
    return static_cast<std::int32_t>(completed.load(std::memory_order_acquire) - ticket) >= 0;
  }
  void finish(std::uint32_t ticket) noexcept {
    completed.store(ticket, std::memory_order_release);
    completed.notify_all();
  }
  void wait_for(std::uint32_t ticket) const noexcept {
    for (auto seen = completed.load(std::memory_order_acquire); static_cast<std::int32_t>(seen - ticket) < 0;
         seen = completed.load(std::memory_order_acquire)) {
      completed.wait(seen, std::memory_order_acquire);
    }
  }
};

// The counts are shared with operations in streams, so that an event may be destroyed before they run, as CUDA's may.
class CpuEvent final : public Event {
 public:
  bool complete() const override { return counts_->reached(issued()); }
  void synchronize() override { counts_->wait_for(issued()); }

  std::uint32_t issue(const void* stream) {
    const void* before = nullptr;
    const bool first = counts_->stream.compare_exchange_strong(before, stream);
    SPILLWAY_CHECK(first || before == stream, "an event was recorded on a second stream");
    return counts_->issued.fetch_add(1, std::memory_order_acq_rel) + 1;
  }
  std::uint32_t issued() const noexcept { return counts_->issued.load(std::memory_order_acquire); }
  const std::shared_ptr<EventCounts>& counts() const noexcept { return counts_; }

 private:
  std::shared_ptr<EventCounts> counts_ = std::make_shared<EventCounts>();
};

// Device memory that is mapped twice: its first address for the host, and its first address for the device.
struct Mapping {
  std::byte* host = nullptr;
  std::byte* device = nullptr;
  Bytes bytes = 0;
};
class Mappings {
 public:
  void add(const Mapping& mapping) {
    const std::lock_guard lock(mutex_);
    mappings_.push_back(mapping);
  }
  void remove(const std::byte* host) {
    const std::lock_guard lock(mutex_);
    std::erase_if(mappings_, [&](const Mapping& mapping) { return mapping.host == host; });
  }
  std::byte* device_pointer(std::byte* address) const {
    const std::lock_guard lock(mutex_);
    for (const Mapping& mapping : mappings_) {
      if (address >= mapping.host && address < mapping.host + mapping.bytes) return mapping.device + (address - mapping.host);
    }
    return address;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Mapping> mappings_;
};

class CpuStream final : public Stream {
 public:
  explicit CpuStream(std::shared_ptr<const Mappings> mappings) : mappings_(std::move(mappings)), thread_([this] { work(); }) {}
  ~CpuStream() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    work_came_.notify_one();
    thread_.join();
  }
  CpuStream(const CpuStream&) = delete;
  CpuStream& operator=(const CpuStream&) = delete;

  void run(void (*function)(void*), void* context) override { enqueue({.call = function, .target = context}); }
  void copy_async(std::byte* target, const std::byte* source, Bytes bytes) override {
    SPILLWAY_CHECK(bytes >= 0, "a copy of {} bytes", bytes);
    if (bytes == 0) return;
    enqueue({.kind = Kind::copy,
             .target = mappings_->device_pointer(target),
             .source = mappings_->device_pointer(const_cast<std::byte*>(source)),
             .number = static_cast<std::uint64_t>(bytes)});
  }
  void record(Event& event) override {
    auto& mine = dynamic_cast<CpuEvent&>(event);
    enqueue({.kind = Kind::record, .number = mine.issue(this), .event = mine.counts()});
  }
  void wait(Event& event) override {
    auto& mine = dynamic_cast<CpuEvent&>(event);
    enqueue({.kind = Kind::wait, .number = mine.issued(), .event = mine.counts()});
  }
  void synchronize() override {
    std::unique_lock lock(mutex_);
    const std::uint64_t last = enqueued_;
    work_done_.wait(lock, [&] { return done_ >= last; });
  }
  void* native_handle() const noexcept override { return nullptr; }

 private:
  enum class Kind : std::uint8_t { call, copy, record, wait };
  struct Operation {
    Kind kind = Kind::call;
    void (*call)(void*) = nullptr;
    void* target = nullptr;  // context, or a copy's target
    const void* source = nullptr;
    std::uint64_t number = 0;  // bytes or ticket
    std::shared_ptr<EventCounts> event;
  };
  static constexpr std::size_t kRing = 4096;

  void enqueue(Operation operation) {
    {
      std::unique_lock lock(mutex_);
      SPILLWAY_CHECK(enqueued_ - done_ < kRing || std::this_thread::get_id() != thread_.get_id(),
                     "a stream's own function enqueues on it and the {} places are taken", kRing);
      work_done_.wait(lock, [&] { return enqueued_ - done_ < kRing; });
      ring_[enqueued_++ % kRing] = std::move(operation);
    }
    work_came_.notify_one();
  }

  // A function that throws ends the process here: it has no caller to tell.
  void work() noexcept {
    std::unique_lock lock(mutex_);
    for (;;) {
      work_came_.wait(lock, [&] { return done_ < enqueued_ || ending_; });
      if (done_ == enqueued_) return;
      const Operation operation = std::move(ring_[done_ % kRing]);
      lock.unlock();
      execute(operation);
      lock.lock();
      ++done_;
      work_done_.notify_all();
    }
  }

  static void execute(const Operation& operation) {
    switch (operation.kind) {
      case Kind::call: return operation.call(operation.target);
      case Kind::copy: std::memcpy(operation.target, operation.source, operation.number); return;
      case Kind::record: return operation.event->finish(static_cast<std::uint32_t>(operation.number));
      case Kind::wait: return operation.event->wait_for(static_cast<std::uint32_t>(operation.number));
    }
  }

  const std::shared_ptr<const Mappings> mappings_;
  std::mutex mutex_;
  std::condition_variable work_came_, work_done_;
  std::array<Operation, kRing> ring_;
  std::uint64_t enqueued_ = 0, done_ = 0;
  bool ending_ = false;
  std::thread thread_;  // last: it uses the others
};

enum class DeviceMemory : std::uint8_t { of_the_host, apart };

class CpuRuntime final : public Runtime {
 public:
  explicit CpuRuntime(DeviceMemory device_memory) : device_memory_(device_memory) {}

  Allocation allocate(Tier tier, Bytes bytes, const std::string& name) override {
    SPILLWAY_CHECK(in_memory(tier), "{}: {} bytes of NVMe asked of the device runtime", name, bytes);
    switch (tier) {  // any further tier needs its own kind of memory here
      case Tier::device:
        if (device_memory_ == DeviceMemory::apart) return allocate_apart(bytes, name);
        break;
      case Tier::host:
      case Tier::nvme: break;
    }
    auto arena = std::make_unique<Arena>(bytes, name);
    std::byte* data = arena->data();
    return {Allocation::Owner(arena.release(), [](void* owned) { delete static_cast<Arena*>(owned); }), data, bytes, name};
  }
  std::byte* device_pointer(std::byte* address) const override { return mappings_->device_pointer(address); }
  void copy(std::byte* target, const std::byte* source, Bytes bytes) override {
    SPILLWAY_CHECK(bytes >= 0, "a copy of {} bytes", bytes);
    if (bytes == 0) return;
    std::memcpy(mappings_->device_pointer(target), mappings_->device_pointer(const_cast<std::byte*>(source)),
                static_cast<std::size_t>(bytes));
  }
  bool host_sees_device() const noexcept override { return true; }
  void clear(std::byte* target, Bytes bytes) override {
    if (bytes > 0) std::memset(mappings_->device_pointer(target), 0, static_cast<std::size_t>(bytes));
  }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<CpuStream>(mappings_); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<CpuEvent>(); }
  std::string describe() const override {
    return fmt::format("CPU, {} threads, {:.1f} GiB", std::thread::hardware_concurrency(),
                       static_cast<double>(memory_info().total) / static_cast<double>(kGiB));
  }
  MemoryInfo memory_info() const override {
    struct sysinfo machine{};
    if (::sysinfo(&machine) != 0) return {};
    const auto bytes = [&](unsigned long units) { return static_cast<Bytes>(units) * machine.mem_unit; };
    return {bytes(machine.freeram), bytes(machine.totalram)};
  }

 private:
  // Memory of a device that is apart. It shares the mappings, as an allocation may outlive the runtime.
  struct Apart {
    TwiceMapped memory;
    std::shared_ptr<Mappings> mappings;
    Apart(Bytes bytes, const std::string& name, std::shared_ptr<Mappings> all) : memory(bytes, name), mappings(std::move(all)) {
      mappings->add({memory.host_view(), memory.device_view(), bytes});
    }
    ~Apart() { mappings->remove(memory.host_view()); }
    Apart(const Apart&) = delete;
    Apart& operator=(const Apart&) = delete;
  };
  Allocation allocate_apart(Bytes bytes, const std::string& name) const {
    auto apart = std::make_unique<Apart>(bytes, name, mappings_);
    std::byte* data = apart->memory.host_view();
    return {Allocation::Owner(apart.release(), [](void* owned) { delete static_cast<Apart*>(owned); }), data, bytes, name};
  }

  const DeviceMemory device_memory_;
  const std::shared_ptr<Mappings> mappings_ = std::make_shared<Mappings>();
};

}  // namespace

std::unique_ptr<Runtime> Runtime::make_cpu() { return std::make_unique<CpuRuntime>(DeviceMemory::of_the_host); }
std::unique_ptr<Runtime> Runtime::make_cpu_apart() { return std::make_unique<CpuRuntime>(DeviceMemory::apart); }

}  // namespace spillway
