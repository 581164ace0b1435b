#include "memory/passes/reach.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <utility>

namespace spillway {
namespace {

constexpr int kUnitsAhead = 2;
constexpr Bytes kBehind = 2;
constexpr Bytes kOwn = 2;  // while an object is written others are read, and writes of others stand before it

// [tasks] bytes that each task takes (not_by: write) or leaves (not_by: read). An object counts once in a phase of compute, but
// an object of a strip counts with each task.
std::vector<Bytes> bytes_of_tasks(const TaskList& list, Access not_by) {
  std::vector<Bytes> found;
  found.reserve(list.tasks.size());
  std::vector<int> counted(list.objects.size(), -1);  // [objects] the phase, or the task, that counted it last
  for (const Task& task : list.tasks) {
    Bytes bytes = 0;
    for (const TaskOperand& operand : list.operands_of(task)) {
      if (operand.object < 0 || operand.access == not_by) continue;
      const Object& object = list.objects[static_cast<std::size_t>(operand.object)];
      if (object.home == operand.at && object.block < 0) continue;
      int& last = counted[static_cast<std::size_t>(operand.object)];
      const int now = object.micro_batch >= 0 ? static_cast<int>(found.size()) : task.phase;
      if (std::exchange(last, now) != now) bytes += object.bytes;
    }
    found.push_back(bytes);
  }
  return found;
}

// [tasks] the first task from which on at most `most` bytes are taken before this one. With 0: the task itself.
std::vector<int> firsts_within(const std::vector<Bytes>& taken, Bytes most) {
  std::vector<int> firsts;
  firsts.reserve(taken.size());
  Bytes between = 0;
  for (int task = 0, first = 0; task < std::ssize(taken); ++task) {
    for (; first < task && (between > most || most == 0); ++first) between -= taken[static_cast<std::size_t>(first)];
    firsts.push_back(first);
    between += taken[static_cast<std::size_t>(task)];
  }
  return firsts;
}

bool computes(const Task& task) { return task.op.lane == Lane::compute && task.op.kind != OpKind::update; }

// The tasks at which the latest strips (or units) began, newest first: the current one, and those before it during which its
// objects may be fetched.
using Begins = std::array<int, 1 + kUnitsAhead>;
void add(Begins& begins, int task) {
  std::shift_right(begins.begin(), begins.end(), 1);
  begins.front() = task;
}

}  // namespace

int Reach::behind(int task, Bytes bytes) const {
  if (kept == 0) return task;
  const Bytes most = left[static_cast<std::size_t>(task)] + std::max(kept, kOwn * bytes);
  return static_cast<int>(std::upper_bound(left.begin() + task, left.end(), most) - left.begin()) - 1;
}

Reach reach_of(const TaskList& list, Bytes ahead) {
  Reach reach;
  std::vector<Bytes> taken = bytes_of_tasks(list, Access::write);
  reach.unit = reach.ahead = firsts_within(taken, ahead);
  for (std::size_t task = 0; task < list.tasks.size(); ++task) taken[task] *= computes(list.tasks[task]);
  const std::vector<int> of_compute = firsts_within(taken, ahead);
  Begins strips{}, units{};
  int phase = -1;
  for (std::size_t task = 0; task < list.tasks.size(); ++task) {
    const Task& of = list.tasks[task];
    if (!computes(of)) continue;
    add(strips, static_cast<int>(task));
    if (std::exchange(phase, of.phase) != of.phase) add(units, static_cast<int>(task));
    reach.unit[task] = std::min({reach.unit[task], units.front(), std::max(of_compute[task], units.back())});
    reach.ahead[task] = std::min(reach.ahead[task], std::max(of_compute[task], strips.back()));
  }
  reach.kept = ahead / kBehind;
  reach.left = bytes_of_tasks(list, Access::read);
  std::partial_sum(reach.left.begin(), reach.left.end(), reach.left.begin());
  return reach;
}

}  // namespace spillway
