// The emulated GPU of a program that is linked with it: one device, as the program's environment says.
//   SPILLWAY_SIMT_MEMORY     bytes of its memory (1 GiB)
//   SPILLWAY_SIMT_FREE       bytes of it that others have left (all)
//   SPILLWAY_SIMT_SEED       seed of the order of its work (0: all as late as may be)
//   SPILLWAY_SIMT_NO_DEVICE  there is no device, and this is why
#pragma once

#include <cstdlib>
#include <memory>

#include "memory/base/error.h"
#include "offload/device.h"
#include "tests/simt/host_gemm.h"
#include "tests/simt/runtime.h"

namespace spillway::simt {

inline std::int64_t number_of(const char* name, std::int64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoll(text, nullptr, 10);
}

inline Gpus emulated_gpus() {
  if (const char* const why = std::getenv("SPILLWAY_SIMT_NO_DEVICE")) return {.usable = {}, .why_none = why};
  return {.usable = {{.index = 0, .name = "emulated GPU", .capability = 120, .driver = "an emulation"}}, .why_none = {}};
}

inline MemoryInfo emulated_memory() {
  const Bytes memory = number_of("SPILLWAY_SIMT_MEMORY", kGiB);
  return {.free = number_of("SPILLWAY_SIMT_FREE", memory), .total = memory};
}

inline std::unique_ptr<Runtime> emulated_runtime(int index) {
  if (index != 0)
    throw InputError("CUDA device " + std::to_string(index) + " does not exist: this machine has 1", "Use --device cuda:0.");
  return make_runtime({.seed = static_cast<std::uint64_t>(number_of("SPILLWAY_SIMT_SEED", 0)),
                       .memory = number_of("SPILLWAY_SIMT_MEMORY", kGiB)});
}

}  // namespace spillway::simt
