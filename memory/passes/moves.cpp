#include "memory/passes/moves.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "memory/base/error.h"
#include "memory/passes/grouped.h"
#include "memory/passes/sort_stably.h"

namespace spillway {
namespace {

constexpr int kShortOfAll = 8;  // a buffer lasts long when it lives for more than 1/8 of a step's phases

// Builds the program. A plan of a large model has some hundred thousand operations, and a search makes many plans: so whatever
// exists once for each object, use or move lies in arrays, and no names are put together here.
class Issue {
 public:
  Issue(const Plan& plan, const TaskList& list, const Residencies& residencies)
      : choices_(plan.choices),
        list_(list),
        residencies_(residencies),
        all_(residencies.all()),
        resident_count_(static_cast<int>(plan.resident.size())),
        buffer_of_(all_.size(), -1),
        home_of_(list.objects.size(), -1),
        changed_(list.objects.size(), 0) {
    serving_.reserve(list.objects.size());
    for (int object = 0; object < std::ssize(list.objects); ++object) serving_.push_back(residencies.first_of(object));
  }

  Program run() {
    const std::size_t tasks = list_.tasks.size();
    Grouped fetches = by_task([](const Residency& of) { return of.is_fetched() ? of.fetch_at : -1; });
    Grouped saves = by_task([](const Residency& of) { return of.is_saved() ? of.last_change : -1; });
    std::vector<int> last_op_of;  // [tasks] the last of the operations that are issued with the task
    last_op_of.reserve(tasks);
    program_.room = std::make_unique<std::pmr::monotonic_buffer_resource>((tasks + all_.size()) * 3 * sizeof(Operand));
    program_.ops.reserve(tasks + all_.size());
    program_.buffers.reserve(tasks + all_.size());
    for (int task = 0; task < static_cast<int>(tasks); ++task) {
      issue_fetches(task, fetches.of(task));
      issue_task(task);
      issue_saves(task, saves.of(task));
      last_op_of.push_back(static_cast<int>(program_.ops.size()) - 1);
    }
    for (std::size_t i = 0; i < all_.size(); ++i) {
      if (buffer_of_[i] < 0) continue;
      Buffer& held = buffer(buffer_of_[i]);
      held.last_op = std::max(held.last_op, last_op_of[static_cast<std::size_t>(all_[i].free_after)]);
    }
    return std::move(program_);
  }

 private:
  const Object& object_of(int residency) const { return list_.objects[static_cast<std::size_t>(at(residency).object)]; }
  const Residency& at(int residency) const { return all_[static_cast<std::size_t>(residency)]; }

  template <typename TaskOf>
  Grouped by_task(const TaskOf& task_of) const {
    return Grouped(list_.tasks.size(), [&](const auto& add) {
      for (int i = 0; i < std::ssize(all_); ++i) {
        if (const int task = task_of(at(i)); task >= 0) add(task, i);
      }
    });
  }

  // --- buffers ---

  int add_buffer(const BufferName& name, Category category, Tier tier, Bytes bytes) {
    program_.buffers.push_back({.name = name, .category = category, .tier = tier, .bytes = round_up(bytes, kExtentAlignment)});
    return resident_count_ + static_cast<int>(program_.buffers.size()) - 1;
  }
  Buffer& buffer(int index) { return program_.buffers[static_cast<std::size_t>(index - resident_count_)]; }
  void touch(int index) {
    if (index < resident_count_) return;
    Buffer& touched = buffer(index);
    const int op = static_cast<int>(program_.ops.size());
    if (touched.first_op < 0) touched.first_op = op;
    touched.last_op = std::max(touched.last_op, op);
  }

  // True when the residency's buffer is to be Buffer::apart.
  bool is_apart(const Residency& residency) const {
    if (residency.tier != Tier::device) return false;
    const auto phase_of = [&](const Moment& moment) { return list_.tasks[static_cast<std::size_t>(moment.task)].phase; };
    const int phases = phase_of(residency.last) - phase_of(residency.first);
    const bool lasts = kShortOfAll * phases > list_.tasks.back().phase;
    const Object& object = list_.objects[static_cast<std::size_t>(residency.object)];
    return !residencies_.is_computed_with(residency.object) || (lasts && object.category == Category::gradients);
  }

  int buffer_of_residency(int residency) {
    int& index = buffer_of_[static_cast<std::size_t>(residency)];
    if (index < 0) {
      const Object& of = object_of(residency);
      const Tier tier = at(residency).tier;
      index = add_buffer(of.name, of.home == tier ? of.category : of.staged_category, tier, of.bytes);
      buffer(index).apart = is_apart(at(residency));
    }
    return index;
  }

  // The residency that has the object on the tier at this moment, or -1. Calls come in the order of time.
  int serving(int object, Tier tier, const Moment& now) {
    int& first = serving_[static_cast<std::size_t>(object)];
    const int end = residencies_.end_of(object);
    while (first < end && at(first).last < now) ++first;
    int found = first;
    while (found < end && (at(found).tier != tier || at(found).last < now)) ++found;
    return found < end ? found : -1;
  }

  struct Place {
    int buffer = -1;
    Bytes begin = 0;
  };
  Place place_of(int object_index, Tier tier, const Moment& now) {
    const Object& object = list_.objects[static_cast<std::size_t>(object_index)];
    if (tier == object.home && object.home_buffer >= 0) return {object.home_buffer, object.home_begin};
    if (const int held = serving(object_index, tier, now); held >= 0) return {buffer_of_residency(held), 0};
    SPILLWAY_CHECK(tier == object.home, "{} is not on the {} tier at task {}", object.name.text(), name_of(tier), now.task);
    int& home = home_of_[static_cast<std::size_t>(object_index)];  // the buffer that it is spilled to
    if (home < 0) home = add_buffer(object.name, object.category, object.home, object.bytes);
    return {home, 0};
  }

  // --- operations ---

  // An operation whose operands and waits will lie in the program's room.
  Op with_room(const OpHead& head) const { return {head, Operands(program_.room.get()), Waits(program_.room.get())}; }

  Tier next_of(const Residency& residency) const {
    return next_towards(choices_.chain, residency.tier, list_.objects[static_cast<std::size_t>(residency.object)].home);
  }

  // Adds the move of a residency's object to `op`, the operation about to be issued.
  void add_move(Op& op, int residency, bool fetches, const Moment& now) {
    const Object& object = object_of(residency);
    const int index = at(residency).object;
    const Tier next = next_of(at(residency));
    const Version version = !fetches || changed_[static_cast<std::size_t>(index)] ? Version::after : Version::before;
    // Both places are found before they are touched, as touch() needs the buffers, which place_of() makes.
    const Place far = place_of(index, next, now);
    const Place here{buffer_of_residency(residency), 0};
    const auto operand = [&](const Place& place, Access access) {
      return Operand{.role = access == Access::read ? Role::from : Role::to,
                     .access = access,
                     .kind = object.kind,
                     .version = version,
                     .buffer = place.buffer,
                     .begin = place.begin,
                     .bytes = round_up(object.bytes, kExtentAlignment)};
    };
    op.operands.push_back(operand(fetches ? far : here, Access::read));
    op.operands.push_back(operand(fetches ? here : far, Access::write));
    op.bytes += round_up(object.bytes, kExtentAlignment);
    touch(far.buffer);
    touch(here.buffer);
  }

  // True when two moves become one operation: the arrays of one chunk of optimizer state, which are always wanted together.
  bool move_together(int a, int b) const {
    const Object &x = object_of(a), &y = object_of(b);
    const Residency &p = at(a), &q = at(b);
    return x.lasts != 0 && y.lasts != 0 && p.fetched_in == q.fetched_in && p.saved_in == q.saved_in &&
           x.kind != StateKind::weight && y.kind != StateKind::weight && x.category == y.category && x.block == y.block &&
           x.home == y.home && p.tier == q.tier && p.first.task == q.first.task && p.last_change == q.last_change;
  }

  void issue_moves(std::span<const int> moved, bool fetches, const Moment& now) {
    for (std::size_t i = 0; i < moved.size();) {
      std::size_t end = i + 1;
      while (end < moved.size() && move_together(moved[i], moved[end])) ++end;
      const Residency& first = at(moved[i]);
      const Object& object = object_of(moved[i]);
      const Tier here = first.tier, next = next_of(first);
      Op op = with_room({});
      op.lane = fetches ? lane_between(next, here) : lane_between(here, next);
      op.when = fetches ? first.fetched_in : first.saved_in;
      op.block = object.block;
      op.unit = object.unit;
      if (object.micro_batch >= 0) op.strip = strip_from(choices_, object.micro_batch);
      op.operands.reserve(2 * (end - i));
      for (; i < end; ++i) add_move(op, moved[i], fetches, now);
      program_.ops.push_back(std::move(op));
    }
  }

  int links_to_home(int residency) const { return links_between(choices_.chain, at(residency).tier, object_of(residency).home); }

  // Issues the fetches before a task, objects with fewer links to their home first, then in the order in which they are wanted.
  void issue_fetches(int task, std::span<int> fetches) {
    sort_stably(fetches.begin(), fetches.end(), [&](int a, int b) {
      const Residency &p = at(a), &q = at(b);
      if (links_to_home(a) != links_to_home(b)) return links_to_home(a) < links_to_home(b);
      return p.first.task < q.first.task;
    });
    issue_moves(fetches, true, {task, Moment::Side::before});
  }

  void issue_saves(int task, std::span<int> saves) {
    sort_stably(saves.begin(), saves.end(), [&](int a, int b) { return links_to_home(a) > links_to_home(b); });
    issue_moves(saves, false, {task, Moment::Side::after});
    for (const int residency : saves) {
      if (next_of(at(residency)) == object_of(residency).home)
        changed_[static_cast<std::size_t>(at(residency).object)] |= object_of(residency).lasts != 0;
    }
  }

  void issue_task(int index) {
    const Task& task = list_.tasks[static_cast<std::size_t>(index)];
    Op op = with_room(task.op);
    op.operands.reserve(static_cast<std::size_t>(task.operand_count));
    for (const TaskOperand& wanted : list_.operands_of(task)) {
      Operand operand{.role = wanted.role, .access = wanted.access, .kind = wanted.kind};
      if (wanted.object >= 0) {
        const Place place = place_of(wanted.object, wanted.at, {index, Moment::Side::at});
        operand.buffer = place.buffer;
        operand.begin = place.begin + wanted.begin;
        operand.bytes = wanted.bytes;
      } else if (wanted.bytes > 0) {  // scratch space for this task alone
        operand.buffer = add_buffer({"workspace"}, Category::activations, wanted.at, wanted.bytes);
        operand.bytes = wanted.bytes;
      }
      if (operand.buffer >= 0) touch(operand.buffer);
      op.operands.push_back(operand);
    }
    program_.ops.push_back(std::move(op));
  }

  const Choices& choices_;
  const TaskList& list_;
  const Residencies& residencies_;
  const std::vector<Residency>& all_;
  const int resident_count_;
  Program program_;
  std::vector<int> buffer_of_;  // [residencies] -1: none yet
  std::vector<int> home_of_;    // [objects] the buffer that the object is spilled to; -1: none yet
  std::vector<int> serving_;    // [objects] the first of the object's residencies that is not over
  std::vector<char> changed_;   // [objects] 1: a save of the object's state has reached its home
};

}  // namespace

Program issue(const Plan& plan, const TaskList& list, const Residencies& residencies) {
  return Issue(plan, list, residencies).run();
}

}  // namespace spillway
