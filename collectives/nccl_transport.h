// A transport between processes with a GPU each: NCCL's grouped sends and receives on a stream of its own. The communicator is
// made at the first call, which all ranks come to; NCCL is called by the thread of the calls alone. Not here: NCCL's functions
// (nccl_library.h), who hears that a rank is gone (trainer/run/process_team.h).
#pragma once

#include <memory>
#include <string>

#include "collectives/nccl_library.h"
#include "collectives/tcp_transport.h"
#include "collectives/transport.h"
#include "memory/runtime/runtime.h"

namespace spillway {

class NcclTransport final : public Transport {
 public:
  // `team`: the process's connections, whose abort ends these calls, too, and is begun by abort(). All must outlive this.
  NcclTransport(const NcclLibrary& library, const NcclUniqueId& id, int rank, int ranks, Runtime& runtime, TcpTeam& team);
  // Once all ranks are through with their calls, or one has failed.
  ~NcclTransport() override;

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  // Bytes are on the device. Complete on return.
  void exchange(std::span<const Send> sends, std::span<const Receive> receives) override;
  void abort(const std::string& reason) noexcept override { team_.abort(reason); }

 private:
  void join();
  void enqueue(std::span<const Send> sends, std::span<const Receive> receives);
  void check(int result, const char* call) const;
  // Returns once is_over() is true and no call of NCCL is in progress; throws what has failed meanwhile, by the name of `call`.
  template <typename IsOver>
  void wait(const char* call, const IsOver& is_over);

  const NcclLibrary& library_;
  const NcclUniqueId id_;
  const int rank_, ranks_;
  Runtime& runtime_;
  TcpTeam& team_;
  const std::unique_ptr<Stream> stream_;
  const std::unique_ptr<Event> event_;
  void* communicator_ = nullptr;  // from the first call on
};

}  // namespace spillway
