#include "memory/search/lane_speeds.h"

#include <algorithm>

#include "memory/base/error.h"
#include "memory/plan/chain.h"

namespace spillway {

static_assert(std::ranges::all_of(kLinks, [](const Link& link) { return rate_of(link.up) && rate_of(link.down); }),
              "a lane of a link has no row in kLaneRates (machine.h)");

double seconds_of(const MachineProfile& machine, const UnitGraph& graph, const Work& work) {
  const bool single = graph.dtype == DType::float32;
  double seconds = 0;
  if (work.gemm_flops > 0) {
    const double extra_rows = single ? machine.gemm_fp32_extra_rows : machine.gemm_bf16_extra_rows;
    const double rows = work.gemm_rows > 0 ? work.gemm_rows : static_cast<double>(graph.rows);
    const double flops = work.gemm_flops * (1 + extra_rows / std::max(rows, 1.0));
    seconds += flops / (single ? machine.gemm_fp32_flops : machine.gemm_bf16_flops);
  }
  if (work.attention_flops > 0)
    seconds += work.attention_flops / (single ? machine.attention_fp32_flops : machine.attention_bf16_flops);
  if (work.bytes > 0) {
    const double pointwise = single ? machine.pointwise_fp32_bytes : machine.pointwise_bf16_bytes;
    seconds += work.bytes / (pointwise > 0 ? pointwise : machine.memory_bytes);
  }
  return seconds / (single ? machine.layers_fp32 : machine.layers_bf16);
}

namespace {

// Seconds of a move. On a drive it goes in requests, each of which takes a time of its own besides that of its bytes: the
// measured rates of large and small requests give both.
double move_s(const Op& op, const MachineProfile& machine, const LaneRate& rate) {
  const double bytes_a_second = machine.*rate.bytes;
  if (rate.small_requests == nullptr) return static_cast<double>(op.bytes) / bytes_a_second;
  const double small_requests_a_second = machine.*rate.small_requests;
  const double large_s = static_cast<double>(kRequestBytes) / bytes_a_second;
  const double small_s = small_requests_a_second > 0 ? std::min(1 / small_requests_a_second, large_s) : 0;
  const double byte_s =
      std::min((large_s - small_s) / static_cast<double>(kRequestBytes - kSmallRequestBytes), 1 / bytes_a_second);
  const double request_s = large_s - byte_s * static_cast<double>(kRequestBytes);
  const std::int64_t requests = (op.bytes + kRequestBytes - 1) / kRequestBytes;
  return byte_s * static_cast<double>(op.bytes) + request_s * static_cast<double>(requests);
}

// The factor by which a pass takes longer than its bytes would at the rate of updates. A pass takes as long as its reads; writes
// go on beside them. Two threads of a server: 43 GB/s where all is read, 63 where y += x, 80 in updates, which read 16 of their
// 28 bytes.
double time_by_update_rate(const Op& op) {
  constexpr double read_by_update = 16.0 / 28;
  switch (op.kind) {
    case OpKind::gradient_finish: return 1 / read_by_update;
    case OpKind::gradient_add: return 8.0 / 12 / read_by_update;
    default: return 1;
  }
}

// Seconds of a step's share of a commit: copies, a sync of the bytes written, and a sync of their record.
double commit_s(const Op& op, const MachineProfile& machine, const Choices& choices) {
  const double copy_s = op.bytes > 0 ? static_cast<double>(op.bytes) / machine.nvme_write_bytes : 0;
  return share_of_commits(choices, op) * (copy_s + 2 * machine.nvme_sync_s);
}

// Seconds of the operation's work at its lane's own rate.
double alone(const Op& op, const MachineProfile& machine, const UnitGraph& graph, const Choices& choices) {
  if (const LaneRate* rate = rate_of(op.lane)) return move_s(op, machine, *rate) + op.work.bytes / machine.memory_bytes;
  if (op.lane == Lane::commit) return commit_s(op, machine, choices);
  if (op.lane == Lane::compute) return seconds_of(machine, graph, op.work);
  SPILLWAY_CHECK(op.lane == Lane::update, "nothing says how fast the lane {} is", name_of(op.lane));
  return op.work.bytes / machine.update_bytes * time_by_update_rate(op) *
         (choices.slots == 2 && op.kind == OpKind::update ? machine.hashed_update : 1);
}

struct Pair {
  Lane first, second;
  double first_speed, second_speed;  // of each lane while both run
};

// A machine without NVMe has no rates for it, and a plan for that machine has no such operations.
double share_of(double mixed, double alone, double otherwise = 1) { return alone > 0 ? mixed / alone : otherwise; }

// The speeds that the two ways of a link leave each other. They are separate from the other pairs, which depend on them.
std::vector<Pair> links_of(const MachineProfile& machine) {
  const auto left = [&](Lane lane) { return share_of(mixed_rate(machine, *rate_of(lane)), machine.*rate_of(lane)->bytes); };
  std::vector<Pair> pairs;
  for (const Link& link : kLinks) {
    if (std::ranges::count(pairs, link.up, &Pair::first) == 0)
      pairs.push_back({link.up, link.down, left(link.up), left(link.down)});
  }
  return pairs;
}

// The speeds of other lanes beside each other and beside links that move at their whole rates, and of those links beside them.
std::vector<Pair> pairs_of(const MachineProfile& machine) {
  std::vector<Pair> pairs;
  const auto add = [&](const LaneRate& rate) {
    const auto share = [&](double MachineProfile::* of, double otherwise) {
      return of != nullptr && machine.*of > 0 ? machine.*of : otherwise;
    };
    // Copies take bandwidth of the host's memory for their bytes, and the optimizer alone would keep that memory busy.
    const double by_bytes = std::max(0.1, 1 - share_of(machine.*rate.bytes, machine.update_bytes, 0));
    pairs.push_back({Lane::update, rate.lane, share(rate.update_beside, by_bytes), share(rate.beside_update, 1)});
    pairs.push_back({Lane::compute, rate.lane, share(rate.compute_beside, 1), share(rate.beside_compute, 1)});
  };
  for (const LaneRate& rate : kLaneRates) {
    if (is_copy(rate.lane)) add(rate);
  }
  pairs.push_back({Lane::compute, Lane::update, machine.shared_compute, machine.shared_update});
  for (const LaneRate& rate : kLaneRates) {
    if (is_drive(rate.lane) || rate.lane == Lane::network) add(rate);
  }
  return pairs;
}

}  // namespace

std::vector<double> seconds_alone(const Plan& plan, const UnitGraph& graph, const MachineProfile& machine) {
  std::vector<double> seconds;
  seconds.reserve(plan.step.ops.size());
  for (const Op& op : plan.step.ops) {
    const int passes = op.lane == Lane::compute ? op.strip.count : 1;
    seconds.push_back(alone(op, machine, graph, plan.choices) + passes * machine.operation_s);
  }
  return seconds;
}

LaneSpeeds::LaneSpeeds(const MachineProfile& machine) {
  const std::vector<Pair> links = links_of(machine);
  const auto pairs = pairs_of(machine);
  for (LaneSet running = 0; running < speeds_.size(); ++running) {
    const auto run_both = [&](const Pair& pair) { return (running & set_of(pair.first)) && (running & set_of(pair.second)); };
    PerLane moves;  // share of a lane's own rate that its link leaves it: less where both ways of the link run
    std::ranges::fill(moves, 1);
    for (const Pair& link : links) {
      if (!run_both(link)) continue;
      moves[link.first] = link.first_speed;
      moves[link.second] = link.second_speed;
    }
    PerLane& speed = speeds_[running] = moves;
    for (const Pair& pair : pairs) {
      if (!run_both(pair)) continue;
      speed[pair.first] *= 1 - (1 - pair.first_speed) * moves[pair.second];
      speed[pair.second] *= pair.second_speed;
    }
  }
}

}  // namespace spillway
