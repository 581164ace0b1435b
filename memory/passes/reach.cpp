#include "memory/passes/reach.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace spillway {
namespace {

constexpr Bytes kBehind = 4;

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

Reach reach_of(const TaskList& list, Bytes ahead) {
  const int tasks = static_cast<int>(list.tasks.size());
  Reach reach;
  for (std::vector<int>* of : {&reach.ahead, &reach.phase, &reach.behind}) of->resize(list.tasks.size());
  const std::vector<Bytes> taken = bytes_of_tasks(list, Access::write), left = bytes_of_tasks(list, Access::read);
  Bytes between = 0;
  for (int task = 0, first = 0; task < tasks; ++task) {
    for (; first < task && (between > ahead || ahead == 0); ++first) between -= taken[static_cast<std::size_t>(first)];
    reach.ahead[static_cast<std::size_t>(task)] = first;
    between += taken[static_cast<std::size_t>(task)];
  }
  between = 0;
  for (int task = tasks - 1, last = task; task >= 0; --task) {
    for (; last > task && (between > ahead / kBehind || ahead == 0); --last) between -= left[static_cast<std::size_t>(last)];
    reach.behind[static_cast<std::size_t>(task)] = last;
    between += left[static_cast<std::size_t>(task)];
  }
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
