#include "memory/simulate.h"

#include <algorithm>
#include <limits>

#include "memory/error.h"

namespace spillway {

double seconds_of(const MachineProfile& machine, DType dtype, const Work& work) {
  const bool single = dtype == DType::float32;
  double seconds = 0;
  if (work.gemm_flops > 0) seconds += work.gemm_flops / (single ? machine.gemm_fp32_flops : machine.gemm_bf16_flops);
  if (work.attention_flops > 0) seconds += work.attention_flops / (single ? machine.attention_fp32_flops : machine.attention_bf16_flops);
  if (work.bytes > 0) seconds += work.bytes / machine.memory_bytes;
  return seconds;
}

namespace {

constexpr int kCompute = static_cast<int>(Lane::compute), kUpdate = static_cast<int>(Lane::update);
constexpr int kRead = static_cast<int>(Lane::nvme_read), kWrite = static_cast<int>(Lane::nvme_write);

// Seconds of the operation's work at its lane's own rate.
double alone(const Op& op, const MachineProfile& machine, DType dtype) {
  switch (op.lane) {
    case Lane::nvme_read: return static_cast<double>(op.bytes) / machine.nvme_read_bytes;
    case Lane::nvme_write: return static_cast<double>(op.bytes) / machine.nvme_write_bytes;
    case Lane::update: return op.work.bytes / machine.update_bytes;
    default: return seconds_of(machine, dtype, op.work);
  }
}

struct Pair {
  int first, second;
  double first_speed, second_speed;  // of each while both run
};

// A machine without NVMe has no rates for it, and a plan for it no such operations.
double share_of(double mixed, double alone) { return alone > 0 ? mixed / alone : 1; }

std::array<Pair, 2> pairs_of(const MachineProfile& machine) {
  return {{{kCompute, kUpdate, machine.shared_compute, machine.shared_update},
           {kRead, kWrite, share_of(machine.nvme_mixed_read_bytes, machine.nvme_read_bytes),
            share_of(machine.nvme_mixed_write_bytes, machine.nvme_write_bytes)}}};
}

// Two lanes that slow each other need at least this long: together where that gains, else one after the other.
double bound_of(double first_s, double second_s, const Pair& pair) {
  const double gain = pair.first_speed + pair.second_speed - 1;
  if (gain <= 0) return first_s + second_s;
  const double together = std::min(first_s / pair.first_speed, second_s / pair.second_speed);
  return first_s + second_s - together * gain;
}

}  // namespace

Bound bound_of(const std::array<double, kLanes>& busy_s, const MachineProfile& machine) {
  Bound bound;
  for (int lane = 0; lane < kLanes; ++lane) {
    if (busy_s[lane] > bound.seconds) bound = {busy_s[lane], static_cast<Lane>(lane)};
  }
  for (const Pair& pair : pairs_of(machine)) {
    const double first = busy_s[pair.first], second = busy_s[pair.second];
    const double seconds = bound_of(first, second, pair);
    if (seconds > bound.seconds) bound = {seconds, static_cast<Lane>(first >= second ? pair.first : pair.second)};
  }
  return bound;
}

Prediction simulate(const Plan& plan, const UnitGraph& graph, const MachineProfile& machine) {
  // The first round starts cold and the last has no successor beside its tail: what counts lies between.
  constexpr int kRounds = 5, kShown = 3;
  const Program& program = plan.step;
  const int count = static_cast<int>(program.ops.size());
  Prediction prediction;
  std::array<std::vector<int>, kLanes> lanes;
  std::vector<double> work(count);
  for (int id = 0; id < count; ++id) {
    const int lane = static_cast<int>(program.ops[id].lane);
    lanes[lane].push_back(id);
    work[id] = alone(program.ops[id], machine, graph.dtype) + machine.operation_s;
    prediction.busy_s[lane] += work[id];
  }
  const auto pairs = pairs_of(machine);

  std::vector<char> done(static_cast<std::size_t>(count) * kRounds, 0);
  std::vector<Span> spans(static_cast<std::size_t>(count) * kRounds);
  std::array<std::size_t, kLanes> next{};
  std::array<int, kLanes> active;
  std::array<double, kLanes> left{};
  active.fill(-1);
  double now = 0;
  // A step that may be taken back is over before the next begins.
  const bool apart = speculates(plan.choices);
  int complete = 0;
  const auto ready = [&](int id) {
    if (apart && complete < id / count * count) return false;
    for (const Wait& wait : program.ops[id % count].waits) {
      const int other = (id / count + wait.step) * count + wait.op;
      if (other >= 0 && !done[other]) return false;
    }
    return true;
  };
  for (;;) {
    for (int lane = 0; lane < kLanes; ++lane) {
      if (active[lane] >= 0 || lanes[lane].empty() || next[lane] >= lanes[lane].size() * kRounds) continue;
      const int round = static_cast<int>(next[lane] / lanes[lane].size());
      const int id = round * count + lanes[lane][next[lane] % lanes[lane].size()];
      if (!ready(id)) continue;
      active[lane] = id;
      left[lane] = work[id % count];
      spans[id].begin_s = now;
      ++next[lane];
    }
    std::array<double, kLanes> speed;
    speed.fill(1);
    for (const Pair& pair : pairs) {
      if (active[pair.first] >= 0 && active[pair.second] >= 0) {
        speed[pair.first] = pair.first_speed;
        speed[pair.second] = pair.second_speed;
      }
    }
    double advance = std::numeric_limits<double>::infinity();
    for (int lane = 0; lane < kLanes; ++lane) {
      if (active[lane] >= 0) advance = std::min(advance, left[lane] / speed[lane]);
    }
    if (advance == std::numeric_limits<double>::infinity()) break;
    now += advance;
    for (int lane = 0; lane < kLanes; ++lane) {
      if (active[lane] < 0) continue;
      left[lane] -= advance * speed[lane];
      if (left[lane] > 1e-12) continue;
      spans[active[lane]].end_s = now;
      done[active[lane]] = 1;
      ++complete;
      active[lane] = -1;
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    SPILLWAY_CHECK(next[lane] == lanes[lane].size() * kRounds, "the plan's waits form a circle at lane {}", lane);
  }
  std::array<double, kRounds> end{};
  for (std::size_t id = 0; id < spans.size(); ++id) end[id / count] = std::max(end[id / count], spans[id].end_s);
  // Two steps, because a step may end early at the expense of the next.
  prediction.step_s = (end[kShown] - end[kShown - 2]) / 2;
  prediction.timeline.spans.assign(spans.begin() + kShown * count, spans.begin() + (kShown + 1) * count);
  double origin = std::numeric_limits<double>::infinity();
  for (const Span& span : prediction.timeline.spans) origin = std::min(origin, span.begin_s);
  for (Span& span : prediction.timeline.spans) span.begin_s -= origin, span.end_s -= origin;

  const Bound bound = bound_of(prediction.busy_s, machine);
  prediction.bound_s = bound.seconds;
  prediction.binding_lane = bound.lane;
  return prediction;
}

}  // namespace spillway
