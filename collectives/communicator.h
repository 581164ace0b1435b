// The collectives of one rank: parts of arrays are gathered to wholes, and wholes of all ranks are added up. A transport only
// moves the bytes; the order of addition is here, so that the same numbers come out over every transport, and however late a rank
// is. Not here: links (transport.h), when collectives run (offload/lane_runner.h), what parts there are (memory/plan/sharding.h).
//
// Every rank makes the same calls in the same order, from one thread; each is complete on return. They throw AbortedError after
// abort().
//
// Legend: R ranks, N ranks that share one copy of the sharded arrays (a group), C = R / N copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/rank_memory.h"
#include "collectives/transport.h"
#include "memory/plan/sharding.h"

namespace spillway {

// Bytes that a rank has sent.
struct Traffic {
  Bytes gathered = 0, reduced = 0, words = 0;
  Bytes all() const { return gathered + reduced + words; }
};

// How sums over ranks come about. direct: each rank takes the others' elements of its part and adds them along the tree. ring:
// the textbook's ring, in which partial sums go from rank to rank; the order of addition, and so the bits, are its own. server:
// rank 0 takes all elements, adds them along the same tree and sends back what each rank keeps, the textbook's parameter server;
// plans count the bytes of `direct`.
enum class SumBy : std::uint8_t { direct, ring, server };

class Communicator {
 public:
  // The transport and the rank's memory, which adds, must outlive this.
  Communicator(Transport& transport, const Sharding& sharding, RankMemory& memory, SumBy sum_by = SumBy::direct);

  int rank() const { return transport_.rank(); }

  // Puts together an array of `elements` of `each` bytes from the parts of this rank's group. `part` may lie at its place within
  // `whole`; else it is copied there.
  void gather(std::int64_t elements, Bytes each, const std::byte* part, std::byte* whole);

  // Adds up `whole` [elements] over all ranks. `part`, not null: leaves there the sum of this rank's part; `whole` may be spoilt.
  // Null: leaves the sum of all elements in `whole`. `staging`: staging_of_sum() bytes, perhaps not used.
  void reduce(std::int64_t elements, float* whole, float* part, std::byte* staging);

  // Brings `bytes` from each of `ranks` ranks, all or those of the group, to all [ranks * bytes], in the order of the ranks.
  void gather_words(const std::byte* mine, std::byte* all, Bytes bytes, int ranks);

  // Ends all collectives on all ranks. From any thread.
  void abort(const std::string& reason) noexcept { transport_.abort(reason); }

  int waits_for() const { return transport_.waits_for(); }
  const Traffic& sent() const { return sent_; }

 private:
  using Ranks = std::vector<int>;  // in ascending order, this one among them
  std::size_t place_in(const Ranks& ranks) const;
  void exchange(std::span<const Send> sends, std::span<const Receive> receives);
  void reduce_all(std::int64_t elements, float* whole, float* part, std::byte* staging);
  void gather_from(const Ranks& ranks, std::int64_t elements, Bytes each, const std::byte* part, std::byte* whole, Bytes& sent);
  void reduce_to_parts(const Ranks& ranks, std::int64_t elements, std::int64_t longest, const float* whole, float* part,
                       std::byte* staging);
  void reduce_lent(const Ranks& ranks, const Shard& mine, std::span<const std::byte* const> others, const float* whole,
                   float* part);
  void reduce_by_ring(const Ranks& ranks, std::int64_t elements, std::int64_t longest, const float* whole, float* part,
                      std::byte* staging);
  void reduce_by_server(std::int64_t elements, float* whole, float* part, std::byte* staging);
  void reduce_in_rounds(const Ranks& ranks, std::int64_t elements, std::int64_t longest, const float* whole, float* part,
                        std::byte* staging);

  Transport& transport_;
  const Sharding sharding_;
  RankMemory& memory_;
  const SumBy sum_by_;
  Ranks world_, group_, copies_;  // all; those of this rank's copy; those that have this rank's part in each copy
  Traffic sent_;
  // These describe the call under way. They are members so that no call allocates.
  std::vector<Send> sends_;
  std::vector<Receive> receives_;
  std::vector<const float*> inputs_;
};

}  // namespace spillway
