#include "collectives/nccl_transport.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "memory/base/error.h"

namespace spillway {

NcclTransport::NcclTransport(const NcclLibrary& library, const NcclUniqueId& id, int rank, int ranks, Runtime& runtime,
                             TcpTeam& team)
    : library_(library),
      id_(id),
      rank_(rank),
      ranks_(ranks),
      runtime_(runtime),
      team_(team),
      stream_(runtime.make_stream()),
      event_(runtime.make_event()) {}

NcclTransport::~NcclTransport() {
  // Nothing is under way, unless it is to be broken off: in both cases no other rank need be waited for.
  if (communicator_ != nullptr) library_.comm_abort(communicator_);
}

// Waits with a growing pause: short at first, as most messages are short.
template <typename IsOver>
void NcclTransport::wait(const char* call, const IsOver& is_over) {
  constexpr std::chrono::microseconds shortest(10), longest(200);
  for (auto pause = shortest;; pause = std::min(2 * pause, longest)) {
    const bool was_over = is_over();  // before the look for errors: work that has failed is over, too
    team_.check();
    int state = NcclLibrary::kSuccess;
    check(library_.comm_get_async_error(communicator_, &state), "ncclCommGetAsyncError");
    check(state, call);
    if (was_over && state != NcclLibrary::kInProgress) return;
    std::this_thread::sleep_for(pause);
  }
}

void NcclTransport::check(int result, const char* call) const {
  if (result == NcclLibrary::kSuccess || result == NcclLibrary::kInProgress) return;
  team_.check();  // another's reason is the better one
  throw AbortedError(fmt::format("{} of rank {}: {}", call, rank_, library_.get_error_string(result)));
}

void NcclTransport::join() {
  NcclConfig config;
  check(library_.comm_init_rank_config(&communicator_, ranks_, id_, rank_, &config), "ncclCommInitRankConfig");
  wait("ncclCommInitRankConfig", [] { return true; });
}

void NcclTransport::enqueue(std::span<const Send> sends, std::span<const Receive> receives) {
  void* const stream = stream_->native_handle();
  check(library_.group_start(), "ncclGroupStart");
  for (const Send& send : sends) {
    if (send.bytes == 0) continue;
    check(library_.send(send.data, static_cast<std::size_t>(send.bytes), NcclLibrary::kBytes, send.to, communicator_, stream),
          "ncclSend");
  }
  for (const Receive& receive : receives) {
    if (receive.bytes == 0) continue;
    check(library_.receive(receive.data, static_cast<std::size_t>(receive.bytes), NcclLibrary::kBytes, receive.from,
                           communicator_, stream),
          "ncclRecv");
  }
  check(library_.group_end(), "ncclGroupEnd");
}

void NcclTransport::exchange(std::span<const Send> sends, std::span<const Receive> receives) {
  team_.check();
  runtime_.enter();
  if (communicator_ == nullptr) join();
  const auto has_bytes = [](const auto& message) { return message.bytes > 0; };
  if (std::ranges::none_of(sends, has_bytes) && std::ranges::none_of(receives, has_bytes)) return;
  enqueue(sends, receives);
  wait("ncclGroupEnd", [] { return true; });  // only then is all of it on the stream
  stream_->record(*event_);
  wait("ncclGroupEnd", [this] { return event_->complete(); });
}

}  // namespace spillway
