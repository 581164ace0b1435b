// The part of NCCL that we call, as a table of its functions: of libnccl.so.2, opened when asked for, so that the program starts
// without it, or of a twin (tests/simt/nccl_twin.h). Declared by us from NCCL 2.14's documentation; where nccl.h is installed a
// test compares the two (tests/cuda/nccl_header_test.cpp). Not here: what is sent (nccl_transport.h).
#pragma once

#include <array>
#include <cstddef>

namespace spillway {

// Every rank joins a communicator by the one that rank 0 made.
struct NcclUniqueId {
  std::array<char, 128> internal{};
};

// The part of ncclConfig_t that 2.14 has. Later libraries see by its version that their own fields are missing.
struct NcclConfig {
  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef, version = 21400;
  int blocking = 0;  // calls return at once, and CommGetAsyncError says when they are through
};

struct NcclLibrary {
  static constexpr int kSuccess = 0, kInProgress = 7;  // ncclResult_t
  static constexpr int kBytes = 0;                     // ncclInt8
  int (*get_version)(int* version);
  int (*get_unique_id)(NcclUniqueId* id);
  int (*comm_init_rank_config)(void** comm, int ranks, NcclUniqueId id, int rank, NcclConfig* config);
  int (*comm_get_async_error)(void* comm, int* error);
  int (*comm_abort)(void* comm);
  const char* (*get_error_string)(int result);
  int (*group_start)();
  int (*group_end)();
  int (*send)(const void* data, std::size_t count, int type, int peer, void* comm, void* stream);
  int (*receive)(void* data, std::size_t count, int type, int peer, void* comm, void* stream);
};

// Opens `name`, which stays open. InputError where it cannot be opened, lacks a function or is older than 2.14.
NcclLibrary open_nccl(const char* name = "libnccl.so.2");

}  // namespace spillway
