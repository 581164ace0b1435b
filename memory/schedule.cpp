#include "memory/schedule.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "memory/error.h"
#include "memory/task_list.h"

// The compilation goes in two passes. First the tasks: everything that computes, in an order that alone fixes the numbers
// (task_list.h). Then the movement: each object that does not rest on the device is held there while its uses are near each
// other, written back where it was changed, and read again ahead of its next use.

namespace spillway {
namespace {

// Uses of an object that are served by one buffer on the device.
struct Cluster {
  int first_task = 0, last_task = 0;
  int last_change = -1;        // last task that wrote or updated the object within the cluster
  bool needs_read = false;     // the first use wants contents
  bool all_pending = true;     // every use is conditional
  bool change_pending = true;  // every change is conditional
  bool write_back = false;
  int read_at = 0;             // the read is issued before this task
  int free_after = 0;          // the buffer stays reserved through this task
};

class Movement {
 public:
  Movement(const Choices& choices, const TaskList& list, int resident_count) : choices_(choices), list_(list), resident_count_(resident_count) {}

  Program compile() {
    index_lanes();
    std::vector<std::vector<Cluster>> clusters(list_.objects.size());
    for (std::size_t object = 0; object < list_.objects.size(); ++object) clusters[object] = clusters_of(static_cast<int>(object));
    emit(clusters);
    return std::move(program_);
  }

 private:
  // Where a read for a task is issued, and how long a buffer that another lane still uses is kept from the next user.
  struct Reach {
    std::vector<int> ahead;   // a task: the first task of what lies `lookahead` before it
    std::vector<int> behind;  // the last task of what lies as far after it
  };

  // Parameters are wanted by phases of compute (a unit's micro-batches are one phase) or by single updates; the values of a
  // micro-batch by single tasks.
  void index_lanes() {
    index_lanes(by_phase_, false);
    index_lanes(by_task_, true);
  }
  void index_lanes(Reach& reach, bool single_tasks) const {
    const int tasks = static_cast<int>(list_.tasks.size());
    reach.ahead.resize(tasks);
    reach.behind.resize(tasks);
    for (const Lane lane : {Lane::compute, Lane::update}) {
      std::vector<int> starts, ends;  // first and last task of each phase of the lane
      std::vector<std::pair<int, int>> members;
      int phase = -1;
      for (int task = 0; task < tasks; ++task) {
        if (list_.tasks[task].op.lane != lane) continue;
        if (starts.empty() || single_tasks || lane == Lane::update || list_.tasks[task].phase != phase) {
          phase = list_.tasks[task].phase;
          starts.push_back(task);
          ends.push_back(task);
        }
        ends.back() = task;
        members.emplace_back(task, static_cast<int>(starts.size()) - 1);
      }
      for (const auto& [task, index] : members) {
        reach.ahead[task] = index < choices_.lookahead ? 0 : starts[index - choices_.lookahead];
        const int after = index + choices_.lookahead;
        reach.behind[task] = after < static_cast<int>(ends.size()) ? ends[after] : tasks - 1;
      }
    }
  }

  std::vector<Cluster> clusters_of(int object_index) const {
    const Object& object = list_.objects[object_index];
    std::vector<Cluster> clusters;
    if (object.device_buffer >= 0) return clusters;  // rests where it is used
    const bool on_device = object.home == Tier::device;
    const bool of_micro_batch = object.micro_batch >= 0;
    const std::vector<int>& ahead = of_micro_batch ? by_task_.ahead : by_phase_.ahead;
    const std::vector<int>& behind = of_micro_batch ? by_task_.behind : by_phase_.behind;
    bool has_contents = object.holds_state;
    for (const ObjectUse& use : object.uses) {
      const Task& task = list_.tasks[use.task];
      // A use whose read would be issued before the last one is over is served by the same buffer.
      const bool joins = !clusters.empty() && (on_device || ahead[use.task] <= clusters.back().last_task + 1 ||
                                               (!of_micro_batch && task.phase - list_.tasks[clusters.back().last_task].phase <= choices_.lookahead));
      if (!joins) {
        clusters.push_back({.first_task = use.task, .last_task = use.task});
        clusters.back().needs_read = has_contents && use.access != Access::write && !on_device;
        SPILLWAY_CHECK(has_contents || use.access != Access::read, "task {} ({}) reads {} before it is written", use.task,
                       name_of(task.op.kind), object.name);
      }
      Cluster& cluster = clusters.back();
      cluster.last_task = use.task;
      const bool pending = task.op.condition == Condition::pending;
      cluster.all_pending &= pending;
      if (use.access != Access::read) {
        cluster.last_change = use.task;
        cluster.change_pending &= pending;
        has_contents = true;
      }
    }
    if (on_device) {
      // A user that is not compute runs late: its buffer must not make the next units wait.
      for (Cluster& cluster : clusters) cluster.free_after = lane_of(cluster.last_task) == Lane::compute ? cluster.last_task : behind[cluster.last_task];
      return clusters;
    }
    int written_after = -1;  // reads come after the last write-back
    for (std::size_t i = 0; i < clusters.size(); ++i) {
      Cluster& cluster = clusters[i];
      cluster.write_back = cluster.last_change >= 0 && (object.holds_state || object.outlives_step || i + 1 < clusters.size());
      cluster.read_at = std::max(ahead[cluster.first_task], written_after + 1);
      if (cluster.write_back) written_after = cluster.last_change;
      cluster.free_after = cluster.last_task;
      if (lane_of(cluster.last_task) != Lane::compute) cluster.free_after = behind[cluster.last_task];
      if (cluster.write_back) cluster.free_after = std::max(cluster.free_after, behind[cluster.last_change]);
    }
    return clusters;
  }

  Lane lane_of(int task) const { return list_.tasks[task].op.lane; }

  int add_buffer(const std::string& name, Category category, Tier tier, Bytes bytes) {
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

  // Adds an object's move to `op`, the operation about to be issued.
  void add_move(Op& op, const Object& object, int device_buffer, Slot slot) {
    const bool reads = op.kind == OpKind::read;
    const Bytes bytes = round_up(object.bytes, kExtentAlignment);
    const Operand nvme{.role = Role::nvme, .access = reads ? Access::read : Access::write, .kind = object.kind, .slot = slot,
                       .buffer = home_of(object), .begin = object.home_begin, .bytes = bytes};
    const Operand memory{.role = Role::memory, .access = reads ? Access::write : Access::read, .kind = object.kind, .slot = slot,
                         .buffer = device_buffer, .begin = 0, .bytes = bytes};
    op.operands.push_back(reads ? nvme : memory);
    op.operands.push_back(reads ? memory : nvme);
    op.bytes += bytes;
    touch(nvme.buffer);
    touch(memory.buffer);
  }

  Op move_of(OpKind kind, const Object& object, Condition condition) const {
    Op op;
    op.kind = kind;
    op.lane = kind == OpKind::read ? Lane::nvme_read : Lane::nvme_write;
    op.condition = condition;
    op.block = object.block;
    op.unit = object.unit;
    op.micro_batch = object.micro_batch;
    return op;
  }

  int home_of(const Object& object) {
    if (object.nvme_buffer >= 0) return object.nvme_buffer;
    auto [entry, added] = spill_homes_.try_emplace(&object, -1);
    if (added) entry->second = add_buffer(object.name, object.category, Tier::nvme, object.bytes);
    return entry->second;
  }

  struct Event {
    int object, cluster;
  };

  // The arrays of one chunk of optimizer state move as one operation: what wants one of them wants them all.
  bool moves_together(const Event& a, const Event& b, const std::vector<std::vector<Cluster>>& clusters) const {
    const Object &x = list_.objects[a.object], &y = list_.objects[b.object];
    const Cluster &p = clusters[a.object][a.cluster], &q = clusters[b.object][b.cluster];
    return x.holds_state && y.holds_state && x.kind != StateKind::weight && y.kind != StateKind::weight && x.category == y.category &&
           x.block == y.block && p.first_task == q.first_task && p.last_change == q.last_change;
  }

  template <typename DeviceBuffer>
  void emit_moves(OpKind kind, const std::vector<Event>& events, const std::vector<std::vector<Cluster>>& clusters,
                  const DeviceBuffer& device_buffer, const std::vector<char>& changed) {
    const bool reads = kind == OpKind::read;
    for (std::size_t i = 0; i < events.size();) {
      const Cluster& cluster = clusters[events[i].object][events[i].cluster];
      Op op = move_of(kind, list_.objects[events[i].object], (reads ? cluster.all_pending : cluster.change_pending) ? Condition::pending : Condition::always);
      std::size_t end = i;
      while (end < events.size() && (end == i || moves_together(events[i], events[end], clusters))) {
        const auto& [object, index] = events[end++];
        add_move(op, list_.objects[object], device_buffer(object, index), !reads || changed[object] ? Slot::after : Slot::before);
      }
      program_.ops.push_back(std::move(op));
      i = end;
    }
  }

  void emit(const std::vector<std::vector<Cluster>>& clusters) {
    const std::size_t tasks = list_.tasks.size();
    std::vector<std::vector<Event>> reads(tasks), writes(tasks), frees(tasks);
    std::vector<std::vector<int>> buffers(clusters.size());
    std::vector<std::size_t> current(clusters.size(), 0);
    for (std::size_t object = 0; object < clusters.size(); ++object) {
      buffers[object].assign(clusters[object].size(), -1);
      for (std::size_t i = 0; i < clusters[object].size(); ++i) {
        const Cluster& cluster = clusters[object][i];
        const Event event{static_cast<int>(object), static_cast<int>(i)};
        if (cluster.needs_read) reads[cluster.read_at].push_back(event);
        if (cluster.write_back) writes[cluster.last_change].push_back(event);
        frees[cluster.free_after].push_back(event);
      }
    }
    // Reads are issued in the order in which their data is wanted.
    for (auto& issued : reads) {
      std::stable_sort(issued.begin(), issued.end(), [&](const Event& a, const Event& b) {
        return clusters[a.object][a.cluster].first_task < clusters[b.object][b.cluster].first_task;
      });
    }
    const auto device_buffer = [&](int object, int cluster) {
      int& index = buffers[object][cluster];
      if (index < 0) {
        const Object& of = list_.objects[object];
        index = add_buffer(of.name, of.home == Tier::device ? of.category : of.staged_category, Tier::device, of.bytes);
        buffer(index).apart = std::none_of(of.uses.begin(), of.uses.end(), [&](const ObjectUse& use) { return lane_of(use.task) == Lane::compute; });
      }
      return index;
    };
    std::vector<char> changed(clusters.size(), 0);  // a write-back of the state has been issued
    for (std::size_t t = 0; t < tasks; ++t) {
      emit_moves(OpKind::read, reads[t], clusters, device_buffer, changed);
      const Task& task = list_.tasks[t];
      Op op = task.op;
      for (const TaskOperand& wanted : task.operands) {
        Operand operand{.role = wanted.role, .access = wanted.access, .kind = wanted.kind};
        if (wanted.object >= 0) {
          const Object& object = list_.objects[wanted.object];
          operand.begin = wanted.begin;
          operand.bytes = wanted.bytes;
          if (object.device_buffer >= 0) {
            operand.buffer = object.device_buffer;
            operand.begin += object.device_begin;
          } else {
            std::size_t& at = current[wanted.object];
            while (clusters[wanted.object][at].last_task < static_cast<int>(t)) ++at;
            operand.buffer = device_buffer(wanted.object, static_cast<int>(at));
          }
        } else if (wanted.bytes > 0) {  // scratch for this task alone
          operand.buffer = add_buffer("workspace", Category::activations, Tier::device, wanted.bytes);
          operand.bytes = wanted.bytes;
        }
        if (operand.buffer >= 0) touch(operand.buffer);
        op.operands.push_back(operand);
      }
      program_.ops.push_back(std::move(op));
      emit_moves(OpKind::write, writes[t], clusters, device_buffer, changed);
      for (const Event& event : writes[t]) changed[event.object] |= list_.objects[event.object].holds_state;
      for (const Event& event : frees[t]) {
        const int index = buffers[event.object][event.cluster];
        if (index >= 0) buffer(index).last_op = std::max(buffer(index).last_op, static_cast<int>(program_.ops.size()) - 1);
      }
    }
  }

  const Choices& choices_;
  const TaskList& list_;
  const int resident_count_;
  Program program_;
  Reach by_phase_, by_task_;
  std::map<const Object*, int> spill_homes_;
};

}  // namespace

Plan build_schedule(const UnitGraph& graph, const Choices& choices) {
  Plan plan;
  plan.choices = choices;
  add_resident_buffers(graph, plan);
  const auto compile = [&](const TaskList& tasks) {
    return Movement(plan.choices, tasks, static_cast<int>(plan.resident.size())).compile();
  };
  plan.step = compile(step_tasks(graph, plan));
  if (choices.update == UpdateTime::in_next_forward) plan.flush = compile(flush_tasks(graph, plan));
  return plan;
}

Plan build_inference(const UnitGraph& graph, const Choices& choices) {
  Plan plan;
  plan.choices = choices;
  add_inference_buffers(graph, plan);
  plan.evaluate = build_evaluation(graph, plan);
  return plan;
}

Program build_evaluation(const UnitGraph& graph, const Plan& plan) {
  return Movement(plan.choices, evaluation_tasks(graph, plan), static_cast<int>(plan.resident.size())).compile();
}

}  // namespace spillway
