// The device runtime: memory, streams, events and asynchronous copies of one device, CPU or CUDA, behind one interface.
// Not here: when and what to copy (offload/), compute kernels (models/), where buffers lie in an allocation (passes/packing.h).
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "memory/base/types.h"

namespace spillway {

// A point in a stream's work. An event that was never recorded counts as complete. It may be recorded any number of times, always
// on the same stream, and may be destroyed before the work that was enqueued with it is done.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool complete() const = 0;  // true when the latest record() is complete
  virtual void synchronize() = 0;     // returns when the latest record() is complete; its stream's work up to there is visible
};

// A queue of work that runs in order, beside other streams. All functions but synchronize() return once the work is enqueued;
// they wait only where thousands of operations are queued already. On the CPU each stream has a thread of its own.
class Stream {
 public:
  virtual ~Stream() = default;  // returns when all work is complete

  // The function runs on a thread of the runtime, may block, and must not throw or call the runtime (CUDA forbids it there).
  virtual void run(void (*function)(void*), void* context) = 0;
  // Copies between any two memories. Both ranges must stay valid and untouched until the stream has passed the copy. A source or
  // target on the host must have been allocated by this runtime: with other memory CUDA makes the caller wait for the copy.
  virtual void copy_async(std::byte* target, const std::byte* source, Bytes bytes) = 0;
  virtual void record(Event& event) = 0;
  // This stream, not the caller, waits for the last record() of `event` before this call.
  virtual void wait(Event& event) = 0;
  // Returns when everything enqueued before is complete and visible to the caller. Throws errors that the device reported
  // meanwhile.
  virtual void synchronize() = 0;
  // The handle for launching kernels of the device: a cudaStream_t; null on the CPU.
  virtual void* native_handle() const noexcept = 0;
};

// Memory of one tier; move-only. The destructor returns it to the system; work that touches it must be complete by then.
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

// Memory of the device: its own; with the CPU the machine's, of which a process may have less (trainer/host/host.h).
struct MemoryInfo {
  Bytes free = 0, total = 0;
};

class Runtime {
 public:
  static std::unique_ptr<Runtime> make_cpu();
  // The CPU as a device whose memory is apart from the host's: it behaves like a GPU's tiers, without a GPU. The host may name
  // addresses of that memory, but a touch ends the process.
  static std::unique_ptr<Runtime> make_cpu_apart();
  // Throws InputError where the build or the machine has no such device.
  static std::unique_ptr<Runtime> make_cuda(int index);
  virtual ~Runtime() = default;

  // Allocates memory of a tier; complete on return. Memory of Tier::host copies to and from the device at full speed without the
  // caller (pinned, with CUDA), and is zeroed; the device's has any contents. Throws BudgetError where the tier has too little.
  // Tier::nvme is not allowed here.
  virtual Allocation allocate(Tier tier, Bytes bytes, const std::string& name) = 0;
  // The address by which the device's own code reaches memory that was allocated here for Tier::device.
  virtual std::byte* device_pointer(std::byte* address) const = 0;
  // True where the host may touch the device's memory, at its device_pointer().
  virtual bool host_sees_device() const noexcept = 0;
  // Makes the calling thread launch kernels on this device from here on. Streams do so by themselves.
  virtual void enter() {}
  // Copies between any two places, also to and from other allocators' memory on the host. It runs beside all streams: none of
  // their work may touch these bytes. Complete on return.
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
