// make_cuda() in a build without CUDA.
#include "memory/base/error.h"
#include "memory/runtime/runtime.h"

namespace spillway {

std::unique_ptr<Runtime> Runtime::make_cuda(int index) {
  throw InputError(fmt::format("CUDA device {} was asked for, but this program was built without CUDA", index),
                   "Use --device cpu, or build where a CUDA toolkit is found (cmake -DSPILLWAY_CUDA=ON).");
}

}  // namespace spillway
