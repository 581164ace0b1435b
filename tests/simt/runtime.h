// The emulated twin of CUDA's device runtime: streams, events, copies and memory as memory/runtime/runtime.h has them, by a
// device that does everything late (lazy_device.h). A missing wait gives other bytes; what the contract forbids is an Error.
// Kernels and products are launched by Queue(stream.native_handle(), ...).
//
// The device's memory has two addresses: everyone but the device's own workers has one that faults when it is touched. It is full
// of NaN at first. A copy is an Error if one of its ends is not all in one allocation, if the allocation has ended since, or if
// it is host memory from elsewhere. The call throws it if it can tell; otherwise whoever waits gets it. There may be several
// devices: streams and events are of one, copies go between any.
#pragma once

#include <cstdint>
#include <memory>

#include "memory/runtime/runtime.h"

namespace spillway::simt {

struct DeviceOptions {
  std::uint64_t seed = 0;  // of the order of work; 0: everything as late as may be
  Bytes memory = kGiB;     // of the device
};
std::unique_ptr<Runtime> make_runtime(const DeviceOptions& options = {});

}  // namespace spillway::simt
