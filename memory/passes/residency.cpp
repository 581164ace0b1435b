#include "memory/passes/residency.h"

#include <algorithm>
#include <utility>

#include "memory/base/error.h"
#include "memory/passes/grouped.h"
#include "memory/passes/reach.h"
#include "memory/passes/sort_stably.h"

namespace spillway {
namespace {

struct Use {
  Moment when;
  Access access = Access::read;
  TurnSet in = kEveryTurn;
  TurnSet wants = kAlways;  // the turns of `in` in which the use takes the object's contents
};

// Finds the residencies of one object after the other.
class Finder {
 public:
  Finder(const TaskList& list, const Choices& choices, std::vector<Residency>& found)
      : list_(list), choices_(choices), reach_(reach_of(list, choices.ahead)), found_(found) {}

  // Adds the residencies of `object`. `tasks`: those that use it, in order.
  void add(int object, std::span<const int> tasks) {
    begin(object);
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      if (i == 0 || tasks[i] != tasks[i - 1]) add_use(tasks[i]);
    }
    const std::size_t first = found_.size();
    // From the far ends of the chain towards the home, as the fetches and saves of a tier are uses of the next tier.
    const std::span<const Tier> tiers = tiers_of(choices_.chain);
    for (int links = static_cast<int>(tiers.size()) - 1; links >= 0; --links) {
      for (const Tier tier : tiers) {
        if (links_between(choices_.chain, tier, object_->home) == links) add_on(tier);
      }
    }
    if (tiers_used_ > 1)
      sort_stably(found_.begin() + static_cast<std::ptrdiff_t>(first), found_.end(),
                  [](const Residency& a, const Residency& b) { return a.last < b.last; });
  }

 private:
  struct TaskUse {
    Use use;
    Tier tier;
  };

  void begin(int object) {
    index_ = object;
    object_ = &list_.objects[static_cast<std::size_t>(object)];
    of_micro_batch_ = object_->micro_batch >= 0;
    for (auto& uses : uses_) uses.clear();
    by_tasks_.clear();
    tiers_used_ = 0;
    first_write_ = {};
  }

  // Adds the use of the object by a task, which may take it twice.
  void add_use(int index) {
    const Task& task = list_.tasks[static_cast<std::size_t>(index)];
    Use use{.when = {.task = index}, .in = task.op.when, .wants = 0};
    Tier tier = Tier::device;
    bool is_first = true;
    for (const TaskOperand& operand : list_.operands_of(task)) {
      if (operand.object != index_) continue;
      use.access = is_first || use.access == operand.access ? operand.access : Access::update;
      // A task does not take contents that it has written first itself.
      if (operand.access != Access::write && (is_first || use.wants != 0)) use.wants |= use.in & operand.wants;
      tier = operand.at;
      is_first = false;
    }
    std::vector<Use>& uses = uses_[tier];
    if (uses.empty()) ++tiers_used_;
    uses.push_back(use);
    by_tasks_.push_back({use, tier});
    if (use.access != Access::read && first_write_.task < 0) first_write_ = use.when;
  }

  void add_on(Tier tier) {
    const std::vector<Use>& uses = uses_[tier];
    const bool is_home = tier == object_->home;
    if (uses.empty() || (is_home && object_->home_buffer >= 0)) return;
    unseen_.clear();
    for (const TaskUse& use : by_tasks_) {
      if (tiers_used_ > 1 && is_unseen(use.tier, tier)) unseen_.push_back(use.use);
    }
    const std::size_t first = found_.size();
    for (const Use& use : uses) {
      if (found_.size() == first || (!is_home && !joins(found_.back(), use))) begin_residency(tier, use);
      Residency& residency = found_.back();
      residency.last = use.when;
      if (takes_contents_) residency.fetched_in |= use.wants & ~residency.used_in;
      residency.used_in |= use.in;
      if (use.access == Access::read) continue;
      residency.last_change = use.when.task;
      residency.saved_in |= use.in;  // place_moves() takes away what nobody wants later
    }
    int ready_after = -1;  // the task behind which the next tier has all contents that a fetch may want
    for (std::size_t i = first; i < found_.size(); ++i) {
      Residency& residency = found_[i];
      // A user on another lane than compute runs late: its buffer must not make the next units wait.
      residency.free_after = is_compute(residency.last) ? residency.last.task : reach_.behind(residency.last.task, 0);
      if (is_home) {
        residency.saved_in = 0;
        continue;
      }
      place_moves(residency, std::max(ready_after, i > first ? found_[i - 1].last.task : -1), i + 1 < found_.size());
      if (residency.is_saved()) ready_after = residency.last_change;
    }
    if (!is_home) use_next(tier, std::span(found_).subspan(first));
  }

  bool is_compute(const Moment& moment) const {
    return moment.side == Moment::Side::at && list_.tasks[static_cast<std::size_t>(moment.task)].op.lane == Lane::compute;
  }

  void begin_residency(Tier tier, const Use& use) {
    const bool has_contents = object_->lasts != 0 || (first_write_.task >= 0 && first_write_ < use.when);
    SPILLWAY_CHECK(has_contents || use.access != Access::read, "task {} ({}) reads {} before it is written", use.when.task,
                   name_of(list_.tasks[static_cast<std::size_t>(use.when.task)].op), object_->name.text());
    found_.push_back({.object = index_, .first = use.when, .last = use.when, .tier = tier});
    takes_contents_ = has_contents && tier != object_->home;
  }

  int ahead_of(int task) const { return of_micro_batch_ ? reach_.ahead[task] : reach_.unit[task]; }

  // True when the residency's buffer serves the use, too: when a fetch for the use would be issued before the last use is over.
  bool joins(const Residency& residency, const Use& use) const {
    const int task = use.when.task, last = residency.last.task;
    const auto phase = [&](int index) { return list_.tasks[static_cast<std::size_t>(index)].phase; };
    const bool near = ahead_of(task) <= last + 1 || (!of_micro_batch_ && phase(task) == phase(last));
    return near && !is_cut(residency, use);
  }

  // True when uses on tier `by` do not come to `tier` as moves; uses on tiers farther from the home do.
  bool is_unseen(Tier by, Tier tier) const {
    if (by == tier) return false;
    const int depth = depth_of(choices_.chain, tier), home = depth_of(choices_.chain, object_->home),
              other = depth_of(choices_.chain, by);
    return home > depth ? other > depth : other < depth;
  }
  bool is_cut(const Residency& residency, const Use& use) const {
    return std::ranges::any_of(unseen_, [&](const Use& other) {
      return residency.last < other.when && other.when < use.when && (other.access != Access::read || residency.last_change >= 0);
    });
  }

  void place_moves(Residency& residency, int ready_after, bool has_next) const {
    bool wanted_elsewhere = false;
    for (const Use& other : unseen_) {
      wanted_elsewhere |= other.when > residency.last;
      if (other.access != Access::read && other.when < residency.first) ready_after = std::max(ready_after, other.when.task);
    }
    if (!has_next && !wanted_elsewhere) residency.saved_in &= object_->lasts;
    residency.earliest = ready_after + 1;
    residency.fetch_at = std::max(ahead_of(residency.first.task), residency.earliest);
    if (residency.is_saved())
      residency.free_after = std::max(residency.free_after, reach_.behind(residency.last_change, object_->bytes));
  }

  // Adds the fetches and saves of a tier's residencies as uses on the next tier towards the home. At the home they count only
  // where the object has no place of its own for all of the run, and tasks use it there.
  void use_next(Tier tier, std::span<const Residency> residencies) {
    const Tier next = next_towards(choices_.chain, tier, object_->home);
    std::vector<Use>& uses = uses_[next];
    if (next == object_->home && (object_->home_buffer >= 0 || uses.empty())) return;
    for (const Residency& residency : residencies) {
      using enum Moment::Side;
      const TurnSet fetched = residency.fetched_in, saved = residency.saved_in;
      if (fetched != 0) uses.push_back({{residency.fetch_at, before}, Access::read, fetched, fetched});
      if (saved != 0) uses.push_back({{residency.last_change, after}, Access::write, saved, 0});
    }
    sort_stably(uses.begin(), uses.end(), [](const Use& a, const Use& b) { return a.when < b.when; });
    ++tiers_used_;
  }

  const TaskList& list_;
  const Choices& choices_;
  const Reach reach_;
  std::vector<Residency>& found_;

  // The object that is looked at.
  int index_ = -1;
  const Object* object_ = nullptr;
  bool of_micro_batch_ = false;
  By<Tier, std::vector<Use>> uses_;
  std::vector<TaskUse> by_tasks_;
  int tiers_used_ = 0;
  bool takes_contents_ = false;  // of the residency begun last: contents that it does not write come from another tier
  Moment first_write_;
  std::vector<Use> unseen_;  // uses on other tiers that do not come to the tier that is looked at
};

}  // namespace

Residencies::Residencies(const TaskList& list, const Choices& choices) : computed_with_(list.objects.size(), 0) {
  for (const Task& task : list.tasks) {
    if (task.op.lane != Lane::compute) continue;
    for (const TaskOperand& operand : list.operands_of(task)) {
      if (operand.object >= 0) computed_with_[static_cast<std::size_t>(operand.object)] = 1;
    }
  }
  // An object needs no residency when it has a resident buffer and all its tasks want it at its home.
  std::vector<char> is_held(list.objects.size(), 0);
  for (const TaskOperand& operand : list.operands) {
    if (operand.object < 0) continue;
    const Object& object = list.objects[static_cast<std::size_t>(operand.object)];
    is_held[static_cast<std::size_t>(operand.object)] |= object.home_buffer < 0 || object.home != operand.at;
  }
  Grouped tasks_of(list.objects.size(), [&](const auto& add) {
    for (int task = 0; task < std::ssize(list.tasks); ++task) {
      for (const TaskOperand& operand : list.operands_of(list.tasks[static_cast<std::size_t>(task)])) {
        if (operand.object >= 0 && is_held[static_cast<std::size_t>(operand.object)]) add(operand.object, task);
      }
    }
  });
  all_.reserve(2 * list.objects.size());  // few have more, and growing would need as much memory again
  first_.reserve(list.objects.size() + 1);
  Finder finder(list, choices, all_);
  for (int object = 0; object < std::ssize(list.objects); ++object) {
    first_.push_back(static_cast<int>(all_.size()));
    if (is_held[static_cast<std::size_t>(object)]) finder.add(object, tasks_of.of(object));
  }
  first_.push_back(static_cast<int>(all_.size()));
}

}  // namespace spillway
