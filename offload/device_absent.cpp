// GPUs in a program that was built without CUDA: there are none.
#include "memory/base/error.h"
#include "offload/device.h"

namespace spillway {

Gpus find_gpus() { return {.usable = {}, .why_none = "this program was built without CUDA"}; }

MemoryInfo free_of_gpu(int) { return {}; }

const NcclLibrary& nccl_library() { throw InputError("NCCL: this program was built without CUDA"); }

std::unique_ptr<Device> make_cuda_device(int index, std::span<const int>) {
  throw InputError(fmt::format("--device cuda:{}: this program was built without CUDA", index),
                   "Use --device cpu, or build where a CUDA toolkit is found (tools/setup --with-cuda fetches one).");
}

}  // namespace spillway
