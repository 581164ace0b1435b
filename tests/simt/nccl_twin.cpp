#include "tests/simt/nccl_twin.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/rendezvous.h"
#include "collectives/tcp_transport.h"
#include "memory/base/error.h"
#include "tests/simt/global_memory.h"
#include "tests/simt/machine.h"

namespace spillway::simt {
namespace {

constexpr int kInvalidUsage = 5, kRemoteError = 6;  // ncclResult_t

// The address of the device's bytes, as its workers have it.
std::byte* there(const void* named, std::size_t bytes) {
  const auto under_way = launch_under_way();
  const GlobalRange* const of = allocation_of(reinterpret_cast<std::uintptr_t>(named), bytes);
  if (of == nullptr) throw Error("a message lies in no allocation of a device");
  return static_cast<std::byte*>(const_cast<void*>(named)) + of->shift;
}

struct Comm {
  int rank = 0, ranks = 1;
  std::mutex mutex;               // of `team`, which comes while the communicator is being made
  std::unique_ptr<TcpTeam> team;  // null until then
  std::atomic<int> state{NcclLibrary::kInProgress};
  std::atomic<bool> is_broken_off{false};

  void join(int port) {
    try {
      auto made = std::make_unique<TcpTeam>(rank, meet({.rank = rank,
                                                        .ranks = ranks,
                                                        .port = port,
                                                        .channels = ranks,  // a pair of ranks has one to itself
                                                        .agreed = {},
                                                        .timeout = std::chrono::seconds(120)}));
      const std::lock_guard lock(mutex);
      team = std::move(made);
      state = is_broken_off ? kRemoteError : NcclLibrary::kSuccess;
    } catch (const std::exception&) {
      state = kRemoteError;
    }
  }
  void break_off() {
    is_broken_off = true;
    const std::lock_guard lock(mutex);
    if (team) team->abort("ncclCommAbort");
  }
};

// A communicator as its callers have it: work of a stream may outlive that.
using Handle = std::shared_ptr<Comm>;
const Handle& comm_of(void* handle) { return *static_cast<Handle*>(handle); }

// The sends and receives of one thread between ncclGroupStart and ncclGroupEnd.
struct Group {
  Handle comm;
  Later* stream = nullptr;
  std::vector<Send> sends;
  std::vector<Receive> receives;

  // Pair after pair, in an order that all ranks have: groups may differ from pair to pair, as NCCL's do.
  void go() const {
    for (int first = 0; first < comm->ranks; ++first) {
      for (int second = first + 1; second < comm->ranks; ++second) {
        if (first == comm->rank || second == comm->rank) go_with(first == comm->rank ? second : first);
      }
    }
  }
  void go_with(int peer) const {
    std::vector<Send> to;
    std::vector<Receive> from;
    for (const Send& send : sends) {
      if (send.to == peer) to.push_back({peer, there(send.data, static_cast<std::size_t>(send.bytes)), send.bytes});
    }
    for (const Receive& receive : receives) {
      if (receive.from == peer)
        from.push_back({peer, there(receive.data, static_cast<std::size_t>(receive.bytes)), receive.bytes});
    }
    if (!to.empty() || !from.empty()) comm->team->of((comm->rank + peer) % comm->ranks).exchange(to, from);
  }
};
thread_local Group group;

int of_group(void* comm, void* stream, int type) {
  const bool is_other = group.comm != nullptr && (group.comm != comm_of(comm) || group.stream != stream);
  if (type != NcclLibrary::kBytes || is_other) return kInvalidUsage;
  group.comm = comm_of(comm);
  group.stream = static_cast<Later*>(stream);
  return NcclLibrary::kSuccess;
}

int end_group() {
  const Group of = std::exchange(group, {});
  if (of.comm == nullptr) return NcclLibrary::kSuccess;
  if (of.comm->state != NcclLibrary::kSuccess) return kInvalidUsage;
  of.stream->enqueue_host([of] {
    try {
      of.go();
    } catch (const std::exception&) {
      of.comm->state = kRemoteError;
    }
  });
  return NcclLibrary::kSuccess;
}

int new_id(NcclUniqueId* id) {
  const int port = port_of(listen_on(0));  // free again, and rank 0's in a moment
  std::memcpy(id->internal.data(), &port, sizeof port);
  return NcclLibrary::kSuccess;
}

int begin(void** comm, int ranks, NcclUniqueId id, int rank, NcclConfig* config) {
  if (config->blocking != 0 || config->magic != NcclConfig().magic) return kInvalidUsage;
  int port = 0;
  std::memcpy(&port, id.internal.data(), sizeof port);
  const auto made = std::make_shared<Comm>();
  made->rank = rank, made->ranks = ranks;
  std::thread([made, port] { made->join(port); }).detach();  // it may have nobody to meet
  *comm = new Handle(made);
  return NcclLibrary::kInProgress;
}

}  // namespace

const NcclLibrary& nccl_twin() {
  static const NcclLibrary twin = {
      .get_version =
          [](int* version) {
            *version = 22800;
            return NcclLibrary::kSuccess;
          },
      .get_unique_id = new_id,
      .comm_init_rank_config = begin,
      .comm_get_async_error =
          [](void* comm, int* error) {
            *error = comm_of(comm)->state;
            return NcclLibrary::kSuccess;
          },
      .comm_abort =
          [](void* comm) {
            comm_of(comm)->break_off();
            delete static_cast<Handle*>(comm);
            return NcclLibrary::kSuccess;
          },
      .get_error_string =
          [](int result) {
            return result == kRemoteError ? "remote process exited or there was a network error" : "invalid usage";
          },
      .group_start =
          [] {
            group = {};
            return NcclLibrary::kSuccess;
          },
      .group_end = end_group,
      .send =
          [](const void* data, std::size_t count, int type, int peer, void* comm, void* stream) {
            group.sends.push_back({peer, static_cast<const std::byte*>(data), static_cast<Bytes>(count)});
            return of_group(comm, stream, type);
          },
      .receive =
          [](void* data, std::size_t count, int type, int peer, void* comm, void* stream) {
            group.receives.push_back({peer, static_cast<std::byte*>(data), static_cast<Bytes>(count)});
            return of_group(comm, stream, type);
          }};
  return twin;
}

}  // namespace spillway::simt
