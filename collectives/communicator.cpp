#include "collectives/communicator.h"

#include <algorithm>
#include <numeric>

#include "memory/base/error.h"

namespace spillway {
namespace {

template <typename T>
const std::byte* bytes_at(const T* data, std::int64_t element) {
  return reinterpret_cast<const std::byte*>(data + element);
}

// The elements of a part that come in the round of at most so many that begins there, counted from the part's first.
Shard in_round(const Shard& part, std::int64_t begin, std::int64_t most) {
  return {part.begin + begin, std::clamp<std::int64_t>(part.elements - begin, 0, most)};
}

}  // namespace

Communicator::Communicator(Transport& transport, const Sharding& sharding, RankMemory& memory, SumBy sum_by)
    : transport_(transport),
      sharding_(sharding),
      memory_(memory),
      sum_by_(sum_by),
      world_(static_cast<std::size_t>(sharding.ranks)) {
  SPILLWAY_CHECK(transport.ranks() == sharding.ranks, "{} ranks are there for a plan of {}", transport.ranks(), sharding.ranks);
  std::iota(world_.begin(), world_.end(), 0);
  const int group = rank() / sharding.group, place = rank() % sharding.group;
  for (int member = 0; member < sharding.group; ++member) group_.push_back(group * sharding.group + member);
  for (int copy = 0; copy < sharding.copies(); ++copy) copies_.push_back(copy * sharding.group + place);
}

std::size_t Communicator::place_in(const Ranks& ranks) const {
  return static_cast<std::size_t>(std::ranges::find(ranks, rank()) - ranks.begin());
}

// Copies and sums that are under way may write bytes that are sent: they are complete first.
void Communicator::exchange(std::span<const Send> sends, std::span<const Receive> receives) {
  memory_.finish();
  transport_.exchange(sends, receives);
}

void Communicator::gather(std::int64_t elements, Bytes each, const std::byte* part, std::byte* whole) {
  gather_from(group_, elements, each, part, whole, sent_.gathered);
}

void Communicator::gather_from(const Ranks& ranks, std::int64_t elements, Bytes each, const std::byte* part, std::byte* whole,
                               Bytes& sent) {
  const int parts = static_cast<int>(ranks.size());
  const Shard mine = part_of(elements, parts, static_cast<int>(place_in(ranks)));
  std::byte* const place = whole + mine.begin * each;
  const Bytes bytes = mine.elements * each;
  if (part != place) memory_.copy(place, part, bytes);
  sends_.clear(), receives_.clear();
  for (int other = 0; other < parts; ++other) {
    const int rank_of_other = ranks[static_cast<std::size_t>(other)];
    if (rank_of_other == rank()) continue;
    const Shard of = part_of(elements, parts, other);
    sends_.push_back({rank_of_other, part, bytes});
    receives_.push_back({rank_of_other, whole + of.begin * each, of.elements * each});
    sent += bytes;
  }
  exchange(sends_, receives_);
}

void Communicator::reduce(std::int64_t elements, float* whole, float* part, std::byte* staging) {
  reduce_all(elements, whole, part, staging);
  memory_.finish();
}

void Communicator::reduce_all(std::int64_t elements, float* whole, float* part, std::byte* staging) {
  if (sum_by_ == SumBy::server) return reduce_by_server(elements, whole, part, staging);
  if (part == nullptr) {
    const int ranks = static_cast<int>(world_.size());
    float* const mine = whole + part_of(elements, ranks, rank()).begin;
    reduce_to_parts(world_, elements, shard_elements(elements, ranks), whole, mine, staging);
    gather_from(world_, elements, sizeof(float), bytes_at(mine, 0), reinterpret_cast<std::byte*>(whole), sent_.reduced);
    return;
  }
  const std::int64_t longest = shard_elements(elements, sharding_);
  reduce_to_parts(group_, elements, longest, whole, part, staging);
  if (copies_.size() == 1) return;
  // The part's sums of all copies: each copy's rank adds a part of the part, and then all have all of it.
  const std::int64_t of_part = part_of(elements, sharding_, rank()).elements;
  const int copies = static_cast<int>(copies_.size());
  float* const mine = part + part_of(of_part, copies, static_cast<int>(place_in(copies_))).begin;
  reduce_to_parts(copies_, of_part, shard_elements(longest, copies), part, mine, staging);
  gather_from(copies_, of_part, sizeof(float), bytes_at(mine, 0), reinterpret_cast<std::byte*>(part), sent_.reduced);
}

// Leaves the sum of this rank's part of `whole`, which has a part for each of these ranks, in `part`; that may be its place in
// `whole`. `longest`: of the parts of all ranks that reduce now, also of those that are not among these: all take as many rounds.
void Communicator::reduce_to_parts(const Ranks& ranks, std::int64_t elements, std::int64_t longest, const float* whole,
                                   float* part, std::byte* staging) {
  const int parts = static_cast<int>(ranks.size()), place = static_cast<int>(place_in(ranks));
  const Shard mine = part_of(elements, parts, place);
  sent_.reduced += (elements - mine.elements) * static_cast<Bytes>(sizeof(float));
  if (sum_by_ == SumBy::ring) return reduce_by_ring(ranks, elements, longest, whole, part, staging);
  const auto lent = memory_.reaches_others() ? transport_.lend(ranks, bytes_at(whole, 0)) : std::span<const std::byte* const>();
  if (lent.empty()) return reduce_in_rounds(ranks, elements, longest, whole, part, staging);
  reduce_lent(ranks, mine, lent, whole, part);
}

// Nobody else reads a rank's own part, so the sum may be written in its place while others still read the rest.
void Communicator::reduce_lent(const Ranks& ranks, const Shard& mine, std::span<const std::byte* const> others,
                               const float* whole, float* part) {
  inputs_.clear();
  for (std::size_t other = 0; other < ranks.size(); ++other) {
    const auto* const of = ranks[other] == rank() ? whole : reinterpret_cast<const float*>(others[other]);
    inputs_.push_back(of + mine.begin);
  }
  if (mine.elements > 0) memory_.sum(inputs_, mine.elements, part);
  memory_.finish();
  transport_.take_back(ranks);
}

void Communicator::reduce_in_rounds(const Ranks& ranks, std::int64_t elements, std::int64_t longest, const float* whole,
                                    float* part, std::byte* staging) {
  const int parts = static_cast<int>(ranks.size());
  const std::int64_t most = std::min(longest, kSumRound);
  for (std::int64_t begin = 0; begin < longest; begin += most) {
    const Shard mine = in_round(part_of(elements, parts, static_cast<int>(place_in(ranks))), begin, most);
    sends_.clear(), receives_.clear(), inputs_.clear();
    auto* room = reinterpret_cast<float*>(staging);
    for (int other = 0; other < parts; ++other) {
      const int rank_of_other = ranks[static_cast<std::size_t>(other)];
      if (rank_of_other == rank()) {
        inputs_.push_back(whole + mine.begin);
        continue;
      }
      const Shard theirs = in_round(part_of(elements, parts, other), begin, most);
      sends_.push_back({rank_of_other, bytes_at(whole, theirs.begin), theirs.elements * static_cast<Bytes>(sizeof(float))});
      receives_.push_back({rank_of_other, reinterpret_cast<std::byte*>(room), mine.elements * static_cast<Bytes>(sizeof(float))});
      inputs_.push_back(room);
      room += most;
    }
    exchange(sends_, receives_);
    if (mine.elements > 0) memory_.sum(inputs_, mine.elements, part + begin);
  }
}

// A partial sum of each part goes round, from the rank behind the part's to the part's own, and each adds its elements to it: so
// a rank sends all parts but its own. In rounds, each of which goes once round.
void Communicator::reduce_by_ring(const Ranks& ranks, std::int64_t elements, std::int64_t longest, const float* whole,
                                  float* part, std::byte* staging) {
  const int parts = static_cast<int>(ranks.size()), place = static_cast<int>(place_in(ranks));
  const int next = ranks[static_cast<std::size_t>((place + 1) % parts)],
            last = ranks[static_cast<std::size_t>((place + parts - 1) % parts)];
  const std::int64_t most = std::min(longest, kSumRound);
  float* rooms[2] = {reinterpret_cast<float*>(staging), reinterpret_cast<float*>(staging) + (parts > 2 ? most : 0)};
  for (std::int64_t begin = 0; begin < longest; begin += most) {
    const auto of = [&](int hops) {  // the rank that is so many places before this one
      return in_round(part_of(elements, parts, (place + 2 * parts - hops) % parts), begin, most);
    };
    const float* partial = whole + of(1).begin;
    for (int hop = 1; hop < parts; ++hop) {
      const Shard goes = of(hop), comes = of(hop + 1);
      float* const room = rooms[hop % 2];
      const Send send{next, bytes_at(partial, 0), goes.elements * static_cast<Bytes>(sizeof(float))};
      const Receive receive{last, reinterpret_cast<std::byte*>(room), comes.elements * static_cast<Bytes>(sizeof(float))};
      exchange({&send, 1}, {&receive, 1});
      const float* const of_both[] = {room, whole + comes.begin};
      if (comes.elements > 0) memory_.sum(of_both, comes.elements, hop + 1 == parts ? part + begin : room);
      partial = room;
    }
  }
}

// Rank 0's room decides how much comes at a time.
void Communicator::reduce_by_server(std::int64_t elements, float* whole, float* part, std::byte* staging) {
  constexpr Bytes each = sizeof(float);
  const int ranks = static_cast<int>(world_.size());
  const std::int64_t most = std::max<std::int64_t>(1, staging_of_sum(elements, sharding_) / each / (ranks - 1));
  for (std::int64_t begin = 0; begin < elements; begin += most) {
    const std::int64_t end = std::min(elements, begin + most);
    // The part of these elements that a rank keeps.
    const auto kept_by = [&](int of) {
      const Shard shard = part == nullptr ? Shard{0, elements} : part_of(elements, sharding_, of);
      const std::int64_t first = std::clamp(shard.begin, begin, end);
      return Shard{first, std::clamp(shard.end(), first, end) - first};
    };
    const auto place_of = [&](int of) {
      return part == nullptr ? whole + kept_by(of).begin : part + (kept_by(of).begin - part_of(elements, sharding_, of).begin);
    };
    sends_.clear(), receives_.clear(), inputs_.clear();
    if (rank() > 0) {
      sends_.push_back({0, bytes_at(whole, begin), (end - begin) * each});
      sent_.reduced += sends_.back().bytes;
      exchange(sends_, receives_);
      const Receive receive{0, reinterpret_cast<std::byte*>(place_of(rank())), kept_by(rank()).elements * each};
      exchange({}, {&receive, 1});
      continue;
    }
    inputs_.push_back(whole + begin);
    for (int other = 1; other < ranks; ++other) {
      inputs_.push_back(reinterpret_cast<float*>(staging) + (other - 1) * most);
      receives_.push_back({other, staging + (other - 1) * most * each, (end - begin) * each});
    }
    exchange(sends_, receives_);
    memory_.sum(inputs_, end - begin, whole + begin);
    for (int other = 1; other < ranks; ++other) {
      const Shard kept = kept_by(other);
      sends_.push_back({other, bytes_at(whole, kept.begin), kept.elements * each});
      sent_.reduced += sends_.back().bytes;
    }
    exchange(sends_, {});
    if (part != nullptr && kept_by(0).elements > 0)
      memory_.copy(reinterpret_cast<std::byte*>(place_of(0)), bytes_at(whole, kept_by(0).begin), kept_by(0).elements * each);
  }
}

void Communicator::gather_words(const std::byte* mine, std::byte* all, Bytes bytes, int ranks) {
  const Ranks& of = ranks == sharding_.ranks ? world_ : group_;
  SPILLWAY_CHECK(ranks == static_cast<int>(of.size()), "words of {} ranks, of {} in groups of {}", ranks, sharding_.ranks,
                 sharding_.group);
  sends_.clear(), receives_.clear();
  for (std::size_t other = 0; other < of.size(); ++other) {
    std::byte* const place = all + static_cast<Bytes>(other) * bytes;
    if (of[other] == rank()) {
      memory_.copy(place, mine, bytes);
      continue;
    }
    sends_.push_back({of[other], mine, bytes});
    receives_.push_back({of[other], place, bytes});
    sent_.words += bytes;
  }
  exchange(sends_, receives_);
}

}  // namespace spillway
