#include "memory/schedule.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "memory/error.h"
#include "memory/packing.h"
#include "memory/resident_buffers.h"
#include "memory/task_list.h"

// The compilation goes in two passes. First the tasks: everything that computes, in an order that alone fixes the numbers
// (task_list.h). Then the movement: each object that does not rest on the device is held there while its uses are near each
// other, written back where it was changed, and read again ahead of its next use.

namespace spillway {
namespace {

// Lists of whole numbers, one for each of so many keys, in one array: what is added to a key keeps the order of adding.
class Grouped {
 public:
  // `for_each(add)` calls add(key, item) for every item, and does the same each time that it is called.
  template <typename ForEach>
  Grouped(std::size_t keys, const ForEach& for_each) : begins_(keys + 1, 0) {
    for_each([&](int key, int) { ++begins_[static_cast<std::size_t>(key) + 1]; });
    std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
    items_.resize(static_cast<std::size_t>(begins_.back()));
    std::vector<int> next(begins_.begin(), begins_.end() - 1);
    for_each([&](int key, int item) { items_[static_cast<std::size_t>(next[static_cast<std::size_t>(key)]++)] = item; });
  }
  std::span<int> of(int key) {
    const int begin = begins_[static_cast<std::size_t>(key)], end = begins_[static_cast<std::size_t>(key) + 1];
    return {items_.data() + begin, items_.data() + end};
  }

 private:
  std::vector<int> begins_, items_;
};

// Uses of an object that are served by one buffer on the device.
struct Cluster {
  int object = 0;
  int first_task = 0, last_task = 0;
  int last_change = -1;        // last task that wrote or updated the object within the cluster
  bool needs_read = false;     // the first use wants contents
  bool all_pending = true;     // every use is conditional
  bool change_pending = true;  // every change is conditional
  bool write_back = false;
  bool is_early = false;       // is read earlier than it would have to be
  int read_at = 0;             // the read is issued before this task
  int earliest = 0;            // and not before this one
  int free_after = 0;          // the buffer stays reserved through this task
  int buffer = -1;             // once it is issued
};

constexpr int kShortOfAll = 8;  // what lives for a longer part of a step lasts long

// A plan of a large model has some hundred thousand operations, and a search makes many plans: what there is one of for each
// object, use or move lies in arrays, and names are not made here.
class Movement {
 public:
  Movement(const Plan& plan, const TaskList& list)
      : choices_(plan.choices), list_(list), resident_count_(static_cast<int>(plan.resident.size())) {
    for (const Buffer& buffer : plan.resident) resident_bytes_ += buffer.tier == Tier::device ? buffer.bytes * buffer.slots : 0;
  }

  // `early_room`: Choices::early_room.
  Program compile(Bytes early_room = 0) {
    const auto is_fetch = [](const Task& task) {
      return task.op.kind == OpKind::fetch_rows || task.op.kind == OpKind::update_rows;
    };
    fetches_end_ = static_cast<int>(std::find_if_not(list_.tasks.begin(), list_.tasks.end(), is_fetch) - list_.tasks.begin());
    index_lanes();
    find_clusters();
    emit();
    if (early_room > 0) {
      read_early(early_room);
      emit();
    }
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
    for (const Lane lane : {Lane::compute, Lane::update, Lane::network}) {
      std::vector<int> starts, ends;  // first and last task of each phase of the lane
      std::vector<std::pair<int, int>> members;
      int phase = -1;
      for (int task = 0; task < tasks; ++task) {
        if (list_.tasks[task].op.lane != lane) continue;
        if (starts.empty() || single_tasks || lane != Lane::compute || list_.tasks[task].phase != phase) {
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

  // --- clusters ---

  void find_clusters() {
    computed_with_.assign(list_.objects.size(), 0);
    for (const Task& task : list_.tasks) {
      if (task.op.lane != Lane::compute) continue;
      for (const TaskOperand& operand : list_.operands_of(task)) {
        if (operand.object >= 0) computed_with_[operand.object] = 1;
      }
    }
    Grouped tasks_of(list_.objects.size(), [&](const auto& add) {
      for (int task = 0; task < std::ssize(list_.tasks); ++task) {
        for (const TaskOperand& operand : list_.operands_of(list_.tasks[task])) {
          if (operand.object >= 0 && list_.objects[operand.object].device_buffer < 0) add(operand.object, task);
        }
      }
    });
    clusters_.reserve(list_.objects.size());
    first_cluster_.reserve(list_.objects.size() + 1);
    for (int object = 0; object < std::ssize(list_.objects); ++object) {
      first_cluster_.push_back(static_cast<int>(clusters_.size()));
      add_clusters(object, tasks_of.of(object));
    }
    first_cluster_.push_back(static_cast<int>(clusters_.size()));
  }

  // How a task uses an object that is not resident on the device; a task may take one twice.
  Access access_of(int task, int object) const {
    std::optional<Access> access;
    for (const TaskOperand& operand : list_.operands_of(list_.tasks[task])) {
      if (operand.object != object) continue;
      access = !access || *access == operand.access ? operand.access : Access::update;
    }
    return *access;
  }

  // `tasks` are those that use the object, in order.
  void add_clusters(int object_index, std::span<const int> tasks) {
    const Object& object = list_.objects[object_index];
    const std::size_t first = clusters_.size();
    const bool on_device = object.home == Tier::device;
    const bool of_micro_batch = object.micro_batch >= 0;
    const std::vector<int>& ahead = of_micro_batch ? by_task_.ahead : by_phase_.ahead;
    const std::vector<int>& behind = of_micro_batch ? by_task_.behind : by_phase_.behind;
    bool has_contents = object.holds_state;
    for (std::size_t use = 0; use < tasks.size(); ++use) {
      const int index = tasks[use];
      if (use > 0 && tasks[use - 1] == index) continue;
      const Task& task = list_.tasks[index];
      const Access access = access_of(index, object_index);
      // A use whose read would be issued before the last one is over is served by the same buffer.
      const bool joins = clusters_.size() > first &&
                         (on_device || ahead[index] <= clusters_.back().last_task + 1 ||
                          (!of_micro_batch && task.phase - list_.tasks[clusters_.back().last_task].phase <= choices_.lookahead));
      if (!joins) {
        clusters_.push_back({.object = object_index, .first_task = index, .last_task = index});
        clusters_.back().needs_read = has_contents && access != Access::write && !on_device;
        SPILLWAY_CHECK(has_contents || access != Access::read, "task {} ({}) reads {} before it is written", index,
                       name_of(task.op.kind), object.name.text());
      }
      Cluster& cluster = clusters_.back();
      cluster.last_task = index;
      const bool pending = task.op.condition == Condition::pending;
      cluster.all_pending &= pending;
      if (access != Access::read) {
        cluster.last_change = index;
        cluster.change_pending &= pending;
        has_contents = true;
      }
    }
    int written_after = -1;  // reads come after the last write-back
    for (std::size_t i = first; i < clusters_.size(); ++i) {
      Cluster& cluster = clusters_[i];
      // A user that is not compute runs late: its buffer must not make the next units wait.
      cluster.free_after = lane_of(cluster.last_task) == Lane::compute ? cluster.last_task : behind[cluster.last_task];
      if (on_device) continue;
      cluster.write_back = cluster.last_change >= 0 && (object.holds_state || object.outlives_step || i + 1 < clusters_.size());
      cluster.earliest = std::max(written_after, i > first ? clusters_[i - 1].last_task : -1) + 1;
      // Nothing is computed before the rows of the lookups are there: what the few updates of a forward take is not in their way.
      if (cluster.all_pending && choices_.update == UpdateTime::in_backward)
        cluster.earliest = std::max(cluster.earliest, std::min(fetches_end_, cluster.first_task));
      cluster.read_at = std::max(ahead[cluster.first_task], cluster.earliest);
      if (!cluster.write_back) continue;
      written_after = cluster.last_change;
      cluster.free_after = std::max(cluster.free_after, behind[cluster.last_change]);
    }
  }

  // --- reading early ---

  // As it is staged and moved.
  static Bytes staged_bytes(const Object& object) { return round_up(object.bytes, kExtentAlignment); }
  bool moves_apart(const Cluster& cluster) const { return !computed_with_[cluster.object]; }
  // Buffer::apart.
  bool is_apart(const Cluster& cluster) const {
    const int phases = list_.tasks[cluster.last_task].phase - list_.tasks[cluster.first_task].phase;
    const bool lasts = kShortOfAll * phases > list_.tasks.back().phase;
    return moves_apart(cluster) || (lasts && list_.objects[cluster.object].category == Category::gradients);
  }

  // Moves reads of optimizer state to where there is room for it first, in the order in which it is wanted. What lies below is
  // known from the program without early reads. A read is moved past as many tasks as it is then alive in: all of them together
  // take as long as tasks times buffers alive at once.
  void read_early(Bytes early_room) {
    const std::vector<Bytes> below = ends_below(program_, resident_bytes_);
    const std::size_t tasks = list_.tasks.size();
    std::vector<Bytes> taken(tasks + 1, 0);
    for (const Cluster& cluster : clusters_) {
      if (!is_apart(cluster)) continue;
      const Bytes bytes = staged_bytes(list_.objects[cluster.object]);
      taken[cluster.needs_read ? cluster.read_at : cluster.first_task] += bytes;
      taken[cluster.free_after + 1] -= bytes;
    }
    std::partial_sum(taken.begin(), taken.end(), taken.begin());
    for (std::size_t task = 0; task < tasks; ++task) {
      const auto first = below.begin() + (task == 0 ? 0 : last_op_of_[task - 1] + 1);
      taken[task] += *std::max_element(first, below.begin() + last_op_of_[task] + 1);
    }
    Grouped wanted(tasks, [&](const auto& add) {
      for (int cluster = 0; cluster < std::ssize(clusters_); ++cluster) {
        if (clusters_[cluster].needs_read && moves_apart(clusters_[cluster])) add(clusters_[cluster].first_task, cluster);
      }
    });
    int before = 0;
    for (int task = 0; task < std::ssize(list_.tasks); ++task) {
      for (const int index : wanted.of(task)) {
        Cluster& cluster = clusters_[index];
        const Bytes bytes = staged_bytes(list_.objects[cluster.object]);
        const int earliest = std::max(cluster.earliest, before);
        const int wanted_at = cluster.read_at;
        while (cluster.read_at > earliest && taken[cluster.read_at - 1] + bytes <= early_room)
          taken[--cluster.read_at] += bytes;
        // At the beginning of a step the others may wait for the end of the step before, and these behind them.
        cluster.is_early = cluster.read_at == 0 || cluster.read_at < wanted_at;
        before = std::max(before, cluster.read_at);
      }
    }
    program_ = {};
    for (Cluster& cluster : clusters_) cluster.buffer = -1;
  }

  Lane lane_of(int task) const { return list_.tasks[task].op.lane; }
  const Object& object_of(int cluster) const { return list_.objects[clusters_[cluster].object]; }

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

  int device_buffer(int index) {
    Cluster& cluster = clusters_[index];
    if (cluster.buffer < 0) {
      const Object& of = list_.objects[cluster.object];
      cluster.buffer = add_buffer(of.name, of.home == Tier::device ? of.category : of.staged_category, Tier::device, of.bytes);
      buffer(cluster.buffer).apart = is_apart(cluster);
    }
    return cluster.buffer;
  }

  int home_of(int object_index) {
    const Object& object = list_.objects[object_index];
    if (object.nvme_buffer >= 0) return object.nvme_buffer;
    int& home = spill_home_[object_index];
    if (home < 0) home = add_buffer(object.name, object.category, Tier::nvme, object.bytes);
    return home;
  }

  // --- operations ---

  // With room in the program for what it will touch and wait for.
  Op with_room(const OpHead& head) const { return {head, Operands(program_.room.get()), Waits(program_.room.get())}; }

  // Adds an object's move to `op`, the operation about to be issued.
  void add_move(Op& op, int cluster, Slot slot) {
    const Object& object = object_of(cluster);
    const bool reads = op.kind == OpKind::read;
    const Bytes bytes = staged_bytes(object);
    const Operand nvme{.role = Role::nvme, .access = reads ? Access::read : Access::write, .kind = object.kind, .slot = slot,
                       .buffer = home_of(clusters_[cluster].object), .begin = object.home_begin, .bytes = bytes};
    const Operand memory{.role = Role::memory, .access = reads ? Access::write : Access::read, .kind = object.kind, .slot = slot,
                         .buffer = device_buffer(cluster), .begin = 0, .bytes = bytes};
    op.operands.push_back(reads ? nvme : memory);
    op.operands.push_back(reads ? memory : nvme);
    op.bytes += bytes;
    touch(nvme.buffer);
    touch(memory.buffer);
  }

  // The arrays of one chunk of optimizer state move as one operation: what wants one of them wants them all.
  bool moves_together(int a, int b) const {
    const Object &x = object_of(a), &y = object_of(b);
    const Cluster &p = clusters_[a], &q = clusters_[b];
    return x.holds_state && y.holds_state && x.kind != StateKind::weight && y.kind != StateKind::weight &&
           x.category == y.category && x.block == y.block && p.first_task == q.first_task && p.last_change == q.last_change;
  }

  // `moved` are clusters.
  void emit_moves(OpKind kind, std::span<const int> moved) {
    const bool reads = kind == OpKind::read;
    for (std::size_t i = 0; i < moved.size();) {
      std::size_t end = i + 1;
      while (end < moved.size() && moves_together(moved[i], moved[end])) ++end;
      const Cluster& cluster = clusters_[moved[i]];
      const Object& object = object_of(moved[i]);
      Op op = with_room({});
      op.kind = kind;
      op.lane = reads ? Lane::nvme_read : Lane::nvme_write;
      op.condition = (reads ? cluster.all_pending : cluster.change_pending) ? Condition::pending : Condition::always;
      op.block = object.block;
      op.unit = object.unit;
      op.micro_batch = object.micro_batch;
      op.operands.reserve(2 * (end - i));
      for (; i < end; ++i) add_move(op, moved[i], !reads || changed_[clusters_[moved[i]].object] ? Slot::after : Slot::before);
      program_.ops.push_back(std::move(op));
    }
  }

  // The operation of a task; `current` is the cluster that serves each object now.
  void emit_task(int index, std::vector<int>& current) {
    const Task& task = list_.tasks[index];
    Op op = with_room(task.op);
    op.operands.reserve(static_cast<std::size_t>(task.operand_count));
    for (const TaskOperand& wanted : list_.operands_of(task)) {
      Operand operand{.role = wanted.role, .access = wanted.access, .kind = wanted.kind};
      if (wanted.object >= 0) {
        const Object& object = list_.objects[wanted.object];
        operand.begin = wanted.begin;
        operand.bytes = wanted.bytes;
        if (object.device_buffer >= 0) {
          operand.buffer = object.device_buffer;
          operand.begin += object.device_begin;
        } else {
          int& at = current[wanted.object];
          while (clusters_[at].last_task < index) ++at;
          operand.buffer = device_buffer(at);
        }
      } else if (wanted.bytes > 0) {  // scratch for this task alone
        operand.buffer = add_buffer({"workspace"}, Category::activations, Tier::device, wanted.bytes);
        operand.bytes = wanted.bytes;
      }
      if (operand.buffer >= 0) touch(operand.buffer);
      op.operands.push_back(operand);
    }
    program_.ops.push_back(std::move(op));
  }

  void emit() {
    const std::size_t tasks = list_.tasks.size();
    Grouped reads(tasks, [&](const auto& add) {
      for (int cluster = 0; cluster < std::ssize(clusters_); ++cluster) {
        if (clusters_[cluster].needs_read) add(clusters_[cluster].read_at, cluster);
      }
    });
    Grouped writes(tasks, [&](const auto& add) {
      for (int cluster = 0; cluster < std::ssize(clusters_); ++cluster) {
        if (clusters_[cluster].write_back) add(clusters_[cluster].last_change, cluster);
      }
    });
    changed_.assign(list_.objects.size(), 0);
    spill_home_.assign(list_.objects.size(), -1);
    std::vector<int> current(first_cluster_.begin(), first_cluster_.end() - 1);
    last_op_of_.assign(tasks, 0);
    program_.room = std::make_unique<std::pmr::monotonic_buffer_resource>((tasks + clusters_.size()) * 3 * sizeof(Operand));
    program_.ops.reserve(tasks + clusters_.size());
    program_.buffers.reserve(tasks + clusters_.size());
    for (int t = 0; t < static_cast<int>(tasks); ++t) {
      // Reads are issued in the order in which their data is wanted, early ones before the others.
      const std::span<int> issued = reads.of(t);
      std::stable_sort(issued.begin(), issued.end(), [&](int a, int b) {
        const Cluster &p = clusters_[a], &q = clusters_[b];
        return p.is_early != q.is_early ? p.is_early : p.first_task < q.first_task;
      });
      emit_moves(OpKind::read, issued);
      emit_task(t, current);
      emit_moves(OpKind::write, writes.of(t));
      for (const int cluster : writes.of(t)) changed_[clusters_[cluster].object] |= object_of(cluster).holds_state;
      last_op_of_[t] = static_cast<int>(program_.ops.size()) - 1;
    }
    for (const Cluster& cluster : clusters_) {
      if (cluster.buffer >= 0)
        buffer(cluster.buffer).last_op = std::max(buffer(cluster.buffer).last_op, last_op_of_[cluster.free_after]);
    }
  }

  const Choices& choices_;
  const TaskList& list_;
  const int resident_count_;
  Bytes resident_bytes_ = 0;            // of the device
  Program program_;
  int fetches_end_ = 0;                 // the first task that does not fetch rows for the lookups
  Reach by_phase_, by_task_;
  std::vector<Cluster> clusters_;       // object after object
  std::vector<int> first_cluster_;      // an object: its first cluster; and the end of the last one's
  std::vector<int> spill_home_;         // an object: its buffer on NVMe; -1: none yet
  std::vector<int> last_op_of_;         // a task: of the operations that were issued with it
  std::vector<char> changed_;           // an object: a write-back of its state has been issued
  std::vector<char> computed_with_;     // an object: a task of the compute lane uses it
};

}  // namespace

Plan build_schedule(const UnitGraph& graph, const Choices& choices, const RunBoth& run_both) {
  SPILLWAY_CHECK(!choices.fetches_rows || may_fetch_rows(graph, choices), "rows of lookups cannot be fetched in this plan");
  Plan plan;
  plan.choices = choices;
  add_resident_buffers(graph, plan);
  const auto compile_step = [&] { plan.step = Movement(plan, step_tasks(graph, plan)).compile(choices.early_room); };
  if (defers_any(choices)) {
    run_both(compile_step, [&] { plan.flush = Movement(plan, flush_tasks(graph, plan)).compile(); });
  } else {
    compile_step();
  }
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
  return Movement(plan, evaluation_tasks(graph, plan)).compile();
}

}  // namespace spillway
