#include "memory/passes/reach.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace spillway {
namespace {

constexpr Bytes kBehind = 2;
constexpr Bytes kOwn = 2;  // a lane that writes an object reads at the same time, and others stand before it

// What each task takes, or leaves: an object counts once in a phase of compute, one of a strip with each task.
std::vector<Bytes> bytes_of_tasks(const TaskList& list, Access not_by) {
  std::vector<Bytes> found;
  found.reserve(list.tasks.size());
  std::vector<int> counted(list.objects.size(), -1);  // an object: the phase, or the task
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

}  // namespace

int Reach::behind(int task, Bytes bytes) const {
  if (kept == 0) return task;
  const Bytes most = left[static_cast<std::size_t>(task)] + std::max(kept, kOwn * bytes);
  return static_cast<int>(std::upper_bound(left.begin() + task, left.end(), most) - left.begin()) - 1;
}

Reach reach_of(const TaskList& list, Bytes ahead) {
  const int tasks = static_cast<int>(list.tasks.size());
  Reach reach;
  for (std::vector<int>* of : {&reach.ahead, &reach.phase}) of->resize(list.tasks.size());
  reach.left.resize(list.tasks.size());
  const std::vector<Bytes> taken = bytes_of_tasks(list, Access::write), left = bytes_of_tasks(list, Access::read);
  Bytes between = 0;
  for (int task = 0, first = 0; task < tasks; ++task) {
    for (; first < task && (between > ahead || ahead == 0); ++first) between -= taken[static_cast<std::size_t>(first)];
    reach.ahead[static_cast<std::size_t>(task)] = first;
    between += taken[static_cast<std::size_t>(task)];
  }
  reach.kept = ahead / kBehind;
  std::partial_sum(left.begin(), left.end(), reach.left.begin());
  int phase = -1, begin = 0;
  for (int task = 0; task < tasks; ++task) {
    const Task& of = list.tasks[static_cast<std::size_t>(task)];
    const bool is_compute = of.op.lane == Lane::compute && of.op.kind != OpKind::update;
    if (is_compute && std::exchange(phase, of.phase) != of.phase) begin = task;
    reach.phase[static_cast<std::size_t>(task)] = is_compute ? begin : task;
  }
  return reach;
}

}  // namespace spillway
