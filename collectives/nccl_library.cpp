#include "collectives/nccl_library.h"

#include <dlfcn.h>

#include <string>

#include "memory/base/error.h"
#include "memory/base/wheel_library.h"

namespace spillway {
namespace {

constexpr int kOldest = 21400;

InputError cannot(const std::string& why) {
  return InputError(
      fmt::format("NCCL, by which ranks with a GPU each talk as processes: {}", why),
      "Install NCCL 2.14 or later for this CUDA version (libnccl2, or pip's nvidia-nccl-cu13 in the active environment "
      "or with its lib folder in LD_LIBRARY_PATH); or let one process have all GPUs of this host: --ranks N without a launcher.");
}

template <typename Function>
void find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  if (function == nullptr) throw cannot(fmt::format("the library has no {}", name));
}

}  // namespace

NcclLibrary open_nccl(const char* name) {
  std::string why;
  void* const library = open_library(name, why);
  if (library == nullptr) throw cannot(why);
  NcclLibrary functions{};
  find(library, "ncclGetVersion", functions.get_version);
  find(library, "ncclGetUniqueId", functions.get_unique_id);
  find(library, "ncclCommInitRankConfig", functions.comm_init_rank_config);
  find(library, "ncclCommGetAsyncError", functions.comm_get_async_error);
  find(library, "ncclCommAbort", functions.comm_abort);
  find(library, "ncclGetErrorString", functions.get_error_string);
  find(library, "ncclGroupStart", functions.group_start);
  find(library, "ncclGroupEnd", functions.group_end);
  find(library, "ncclSend", functions.send);
  find(library, "ncclRecv", functions.receive);
  int version = 0;
  if (functions.get_version(&version) != NcclLibrary::kSuccess || version < kOldest)
    throw cannot(fmt::format("found version {}.{}, needed 2.14 or later", version / 10000, version / 100 % 100));
  return functions;
}

}  // namespace spillway
