// The emulated GPUs of a program that is linked with them, as the program's environment says.
//   SPILLWAY_SIMT_DEVICES    how many there are (1)
//   SPILLWAY_SIMT_MEMORY     bytes of the memory of each (1 GiB)
//   SPILLWAY_SIMT_FREE       bytes of it that others have left (all)
//   SPILLWAY_SIMT_SEED       seed of the order of its work (0: all as late as may be)
//   SPILLWAY_SIMT_NO_DEVICE  there is no device, and this is why
#pragma once

#include <cstdlib>
#include <memory>

#include "memory/base/error.h"
#include "offload/device.h"
#include "tests/simt/host_gemm.h"
#include "tests/simt/nccl_twin.h"
#include "tests/simt/runtime.h"

namespace spillway::simt {

inline std::int64_t number_of(const char* name, std::int64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoll(text, nullptr, 10);
}

inline Gpus emulated_gpus() {
  if (const char* const why = std::getenv("SPILLWAY_SIMT_NO_DEVICE")) return {.usable = {}, .why_none = why};
  Gpus gpus;
  for (int index = 0; index < number_of("SPILLWAY_SIMT_DEVICES", 1); ++index)
    gpus.usable.push_back({.index = index, .name = "emulated GPU", .capability = 120, .driver = "an emulation"});
  return gpus;
}

inline MemoryInfo emulated_memory() {
  const Bytes memory = number_of("SPILLWAY_SIMT_MEMORY", kGiB);
  return {.free = number_of("SPILLWAY_SIMT_FREE", memory), .total = memory};
}

inline std::unique_ptr<Runtime> emulated_runtime(int index) {
  const std::int64_t devices = number_of("SPILLWAY_SIMT_DEVICES", 1);
  if (index >= devices)
    throw InputError("CUDA device " + std::to_string(index) + " does not exist: this machine has " + std::to_string(devices),
                     "Use --device cuda:0.");
  // Each device has an order of its own.
  const std::int64_t seed = number_of("SPILLWAY_SIMT_SEED", 0);
  return make_runtime(
      {.seed = static_cast<std::uint64_t>(seed == 0 ? 0 : seed + index), .memory = number_of("SPILLWAY_SIMT_MEMORY", kGiB)});
}

}  // namespace spillway::simt
