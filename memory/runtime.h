// The device runtime: memory, streams, events and asynchronous copies of one device, CPU or CUDA, behind one interface.
// Not here: what is copied when (offload/), compute kernels (models/), where buffers lie in an allocation (passes/packing.h).
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "memory/types.h"

namespace spillway {

// A point in a stream's work. One that was never recorded counts as complete. It may be recorded any number of times, always on
// the same stream, and may end before the work that was enqueued with it.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool complete() const = 0;  // of the latest record()
  virtual void synchronize() = 0;     // returns when the latest record() is complete; its stream's work up to there is visible
};

// A queue of work that runs in order, beside other streams. All but synchronize() return once the work is enqueued, which waits
// only where thousands of operations are queued already. On the CPU each stream has a thread of its own.
class Stream {
 public:
  virtual ~Stream() = default;  // returns when all work is complete

  // The function runs on a thread of the runtime, may block, and must not throw or call the runtime (CUDA forbids it there).
  virtual void run(void (*function)(void*), void* context) = 0;
  // Between any two memories. Both ranges stay valid and untouched until the stream has passed the copy. A source or target on
  // the host must be of this runtime's making: from other memory CUDA copies while the caller waits.
  virtual void copy_async(std::byte* target, const std::byte* source, Bytes bytes) = 0;
  virtual void record(Event& event) = 0;
  // This stream, not the caller, waits for what `event` was last recorded for before this call.
  virtual void wait(Event& event) = 0;
  // Returns when everything enqueued before is complete and visible to the caller. Throws what the device reported meanwhile.
  virtual void synchronize() = 0;
  // What kernels of the device are launched with: a cudaStream_t; null on the CPU.
  virtual void* native_handle() const noexcept = 0;
};

// Memory of one tier; move-only, returned to the system at the end. Work that touches it must be complete by then.
class Allocation {
 public:
  using Owner = std::unique_ptr<void, void (*)(void*)>;
  Allocation(Owner owner, std::byte* data, Bytes bytes, std::string name);

  std::byte* data() const noexcept { return data_; }
  Bytes bytes() const noexcept { return bytes_; }
  const std::string& name() const noexcept { return name_; }

 private:
  Owner owner_;
  std::byte* data_;
  Bytes bytes_;
  std::string name_;
};

// Of the device: its own memory; with CPU the machine's, of which a process may have less (trainer/host/host.h).
struct MemoryInfo {
  Bytes free = 0, total = 0;
};

class Runtime {
 public:
  static std::unique_ptr<Runtime> make_cpu();
  // The CPU as a device whose memory is apart from the host's: what a GPU's tiers do, without a GPU. The addresses of its memory
  // may be named by the host, and a touch ends the process.
  static std::unique_ptr<Runtime> make_cpu_apart();
  // Throws InputError where the build or the machine has no such device.
  static std::unique_ptr<Runtime> make_cuda(int index);
  virtual ~Runtime() = default;

  // Tier::host is memory that copies to and from the device at full speed without the caller (pinned, with CUDA), zeroed; the
  // device's holds anything. Complete on return. Throws BudgetError where the tier has not so much; nothing rests on Tier::nvme
  // here.
  virtual Allocation allocate(Tier tier, Bytes bytes, const std::string& name) = 0;
  // What the device's own code uses in place of an address in memory allocated here for Tier::device.
  virtual std::byte* device_pointer(std::byte* address) const = 0;
  // True where the host may touch the device's memory, at its device_pointer().
  virtual bool host_sees_device() const noexcept = 0;
  // The calling thread launches kernels on this device from here on. Streams do so by themselves.
  virtual void enter() {}
  // Between any two places, those of other makers on the host among them, beside all streams: none of their work may touch these
  // bytes. The caller does it, or waits: complete on return.
  virtual void copy(std::byte* target, const std::byte* source, Bytes bytes) = 0;
  // Zeroes memory of the device, as copy() writes to it. Complete on return.
  virtual void clear(std::byte* target, Bytes bytes) = 0;
  // Streams and events must not outlive the runtime.
  virtual std::unique_ptr<Stream> make_stream() = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
  virtual std::string describe() const = 0;  // one line for people
  virtual MemoryInfo memory_info() const = 0;
};

}  // namespace spillway
