#include "memory/passes/early_reads.h"

#include <algorithm>
#include <numeric>

#include "memory/passes/sort_stably.h"

namespace spillway {
namespace {

// Early reads may fill a tier to at most 15/16 of its peak.
constexpr Bytes kRoomOf = 16, kRoom = 15;

class EarlyReads {
 public:
  EarlyReads(const TaskList& list, Chain chain, Residencies& residencies)
      : list_(list), chain_(chain), residencies_(residencies) {}

  void move_on(Tier tier) {
    const std::vector<Residency*> reads = reads_to(tier);
    if (std::ranges::none_of(reads, [&](const Residency* read) { return may_move(*read); })) return;
    std::vector<Bytes> held = held_on(tier);
    const Bytes room = std::ranges::max(held) / kRoomOf * kRoom;
    int before = 0;  // no read passes one that is wanted before it: a block's weight stays before the pieces of its state
    for (Residency* const read : reads) {
      if (may_move(*read)) {
        const Bytes bytes = bytes_of(*read);
        const int earliest = std::max(read->earliest, before);
        while (read->fetch_at > earliest && at(held, read->fetch_at - 1) + bytes <= room) at(held, --read->fetch_at) += bytes;
      }
      before = std::max(before, read->fetch_at);
    }
  }

 private:
  bool may_move(const Residency& read) const { return !residencies_.is_computed_with(read.object); }
  static Bytes& at(std::vector<Bytes>& bytes, int task) { return bytes[static_cast<std::size_t>(task)]; }
  const Object& object_of(const Residency& residency) const { return list_.objects[static_cast<std::size_t>(residency.object)]; }
  Bytes bytes_of(const Residency& residency) const { return round_up(object_of(residency).bytes, kExtentAlignment); }

  // [tasks + 1] bytes held on the tier at each task, without those that rest there for all of the run.
  std::vector<Bytes> held_on(Tier tier) const {
    std::vector<Bytes> held(list_.tasks.size() + 1, 0);
    for (const Residency& residency : residencies_.all()) {
      if (residency.tier != tier) continue;
      at(held, residency.is_fetched() ? residency.fetch_at : residency.first.task) += bytes_of(residency);
      at(held, std::max(residency.free_after, residency.last.task) + 1) -= bytes_of(residency);
    }
    std::partial_sum(held.begin(), held.end(), held.begin());
    for (int task = 0; task < std::ssize(list_.tasks); ++task) {
      for (const TaskOperand& operand : list_.operands_of(list_.tasks[static_cast<std::size_t>(task)])) {
        if (operand.object < 0 && operand.at == tier) at(held, task) += round_up(operand.bytes, kExtentAlignment);
      }
    }
    return held;
  }

  // Residencies on the tier that are fetched straight from their home, in the order in which they are wanted.
  std::vector<Residency*> reads_to(Tier tier) {
    std::vector<Residency*> reads;
    for (Residency& residency : residencies_.all()) {
      if (residency.tier == tier && residency.is_fetched() && links_between(chain_, tier, object_of(residency).home) == 1)
        reads.push_back(&residency);
    }
    sort_stably(reads.begin(), reads.end(), [](const Residency* a, const Residency* b) { return a->first < b->first; });
    return reads;
  }

  const TaskList& list_;
  const Chain chain_;
  Residencies& residencies_;
};

}  // namespace

void read_early(const TaskList& list, Chain chain, Residencies& residencies) {
  EarlyReads reads(list, chain, residencies);
  for (const Tier tier : tiers_of(chain)) reads.move_on(tier);
}

}  // namespace spillway
