// Our declarations of NCCL beside those of nccl.h, where it is installed; and the library itself, which tells its version without
// a GPU. Not compiled where there is no header (tests/CMakeLists.txt).
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "collectives/nccl_library.h"
#include "memory/base/error.h"

namespace spillway {
namespace {

// The same parameters and results, where each of ours is of the size and kind of theirs.
template <typename Ours, typename Theirs>
constexpr bool matches() {
  if constexpr (std::is_pointer_v<Ours>) return std::is_pointer_v<Theirs>;
  if constexpr (std::is_integral_v<Ours>) return sizeof(Ours) == sizeof(Theirs) && !std::is_pointer_v<Theirs>;
  return sizeof(Ours) == sizeof(Theirs) && std::is_class_v<Theirs>;
}
template <typename Result, typename... Ours, typename TheirResult, typename... Theirs>
constexpr bool is_alike(Result (*)(Ours...), TheirResult (*)(Theirs...)) {
  if constexpr (sizeof...(Ours) != sizeof...(Theirs)) {
    return false;
  } else {
    return matches<Result, TheirResult>() && (matches<Ours, Theirs>() && ...);
  }
}

TEST(NcclHeader, HasWhatWeDeclare) {
  constexpr NcclLibrary ours{};
  static_assert(is_alike(ours.get_version, decltype(&ncclGetVersion){}));
  static_assert(is_alike(ours.get_unique_id, decltype(&ncclGetUniqueId){}));
  static_assert(is_alike(ours.comm_init_rank_config, decltype(&ncclCommInitRankConfig){}));
  static_assert(is_alike(ours.comm_get_async_error, decltype(&ncclCommGetAsyncError){}));
  static_assert(is_alike(ours.comm_abort, decltype(&ncclCommAbort){}));
  static_assert(is_alike(ours.get_error_string, decltype(&ncclGetErrorString){}));
  static_assert(is_alike(ours.group_start, decltype(&ncclGroupStart){}));
  static_assert(is_alike(ours.group_end, decltype(&ncclGroupEnd){}));
  static_assert(is_alike(ours.send, decltype(&ncclSend){}));
  static_assert(is_alike(ours.receive, decltype(&ncclRecv){}));
  static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));
  static_assert(NcclLibrary::kSuccess == ncclSuccess && NcclLibrary::kInProgress == ncclInProgress);
  static_assert(NcclLibrary::kBytes == ncclInt8);
  static_assert(offsetof(NcclConfig, size) == offsetof(ncclConfig_t, size));
  static_assert(offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic));
  static_assert(offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version));
  static_assert(offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking));
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(NcclConfig().magic, theirs.magic);
  EXPECT_LE(NcclConfig().version, theirs.version);
}

TEST(NcclHeader, TheLibraryTellsItsVersion) {
  try {
    int version = 0;
    EXPECT_EQ(open_nccl().get_version(&version), NcclLibrary::kSuccess);
    EXPECT_GE(version, 21400);
  } catch (const InputError& error) {
    GTEST_SKIP() << error.what();
  }
}

}  // namespace
}  // namespace spillway
