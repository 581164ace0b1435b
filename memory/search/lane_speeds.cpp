#include "memory/search/lane_speeds.h"

#include <algorithm>

namespace spillway {

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

// Seconds of a move: each request takes a while besides its bytes, as large and small requests show.
double move_s(const Op& op, double bytes_a_second, double small_requests_a_second) {
  const double large_s = static_cast<double>(kRequestBytes) / bytes_a_second;
  const double small_s = small_requests_a_second > 0 ? std::min(1 / small_requests_a_second, large_s) : 0;
  const double byte_s =
      std::min((large_s - small_s) / static_cast<double>(kRequestBytes - kSmallRequestBytes), 1 / bytes_a_second);
  const double request_s = large_s - byte_s * static_cast<double>(kRequestBytes);
  const std::int64_t requests = op.small_requests > 0 ? op.small_requests : (op.bytes + kRequestBytes - 1) / kRequestBytes;
  return byte_s * static_cast<double>(op.bytes) + request_s * static_cast<double>(requests);
}

// Passes take as long as their reads; writes go on beside them. Two threads of a server: 43 GB/s where all is read, 63 where
// y += x, 80 in updates, which read 16 of their 28 bytes. So much longer than by the rate of updates passes take for their bytes.
double time_by_update_rate(const Op& op) {
  constexpr double read_by_update = 16.0 / 28;
  if (op.index == Index::rows) return 1;
  switch (op.kind) {
    case OpKind::gradient_finish:
      return 1 / read_by_update;
    case OpKind::gradient_add:
      return 8.0 / 12 / read_by_update;
    default:
      return 1;
  }
}

// A step's share of a commit: copies, a sync of what was written, and one of the record of it.
double commit_s(const Op& op, const MachineProfile& machine, const Choices& choices) {
  const double copy_s = op.bytes > 0 ? static_cast<double>(op.bytes) / machine.nvme_write_bytes : 0;
  return share_of_commits(choices, op) * (copy_s + 2 * machine.nvme_sync_s);
}

// Seconds of the operation's work at its lane's own rate.
double alone(const Op& op, const MachineProfile& machine, const UnitGraph& graph, const Choices& choices) {
  switch (op.lane) {
    case Lane::nvme_read:
      return move_s(op, machine.nvme_read_bytes, machine.nvme_read_requests);
    case Lane::nvme_write:
      return move_s(op, machine.nvme_write_bytes, machine.nvme_write_requests);
    case Lane::update:
      return op.work.bytes / machine.update_bytes * time_by_update_rate(op) *
             (choices.slots == 2 && updates_block(op) ? machine.hashed_update : 1);
    case Lane::network:
      return static_cast<double>(op.bytes) / machine.network_bytes;
    case Lane::upload:
      return static_cast<double>(op.bytes) / machine.upload_bytes;
    case Lane::download:
      return static_cast<double>(op.bytes) / machine.download_bytes;
    case Lane::commit:
      return commit_s(op, machine, choices);
    case Lane::compute:
      break;
  }
  return seconds_of(machine, graph, op.work);
}

struct Pair {
  Lane first, second;
  double first_speed, second_speed;  // of each while both run
};

// A machine without NVMe has no rates for it, and a plan for it no such operations.
double share_of(double mixed, double alone, double otherwise = 1) { return alone > 0 ? mixed / alone : otherwise; }

// What reads and writes leave each other of the drive. It is apart from the other pairs, as these depend on it.
Pair drive_of(const MachineProfile& machine) {
  return {Lane::nvme_read, Lane::nvme_write, share_of(machine.nvme_mixed_read_bytes, machine.nvme_read_bytes),
          share_of(machine.nvme_mixed_write_bytes, machine.nvme_write_bytes)};
}

// What other lanes lose beside each other and beside a drive that moves at its whole rate, and it beside them.
std::array<Pair, 9> pairs_of(const MachineProfile& machine) {
  // Copies take their bytes of the host's memory, which the optimizer alone would keep busy.
  const auto left_beside = [&](double copied_bytes) {
    return std::max(0.1, 1 - share_of(copied_bytes, machine.update_bytes, 0));
  };
  return {{{Lane::update, Lane::upload, left_beside(machine.upload_bytes), 1},
           {Lane::update, Lane::download, left_beside(machine.download_bytes), 1},
           {Lane::compute, Lane::upload, machine.compute_beside_copy, 1},
           {Lane::compute, Lane::download, machine.compute_beside_copy, 1},
           {Lane::compute, Lane::update, machine.shared_compute, machine.shared_update},
           {Lane::compute, Lane::nvme_read, machine.compute_beside_read, machine.read_beside_compute},
           {Lane::compute, Lane::nvme_write, machine.compute_beside_write, machine.write_beside_compute},
           {Lane::update, Lane::nvme_read, machine.update_beside_read, 1},
           {Lane::update, Lane::nvme_write, machine.update_beside_write, 1}}};
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
  const Pair drive = drive_of(machine);
  const auto pairs = pairs_of(machine);
  for (LaneSet running = 0; running < speeds_.size(); ++running) {
    const auto run_both = [&](const Pair& pair) { return (running & set_of(pair.first)) && (running & set_of(pair.second)); };
    PerLane moves;  // of what a lane does alone: less where the drive goes both ways
    moves.fill(1);
    if (run_both(drive)) {
      moves[static_cast<int>(drive.first)] = drive.first_speed;
      moves[static_cast<int>(drive.second)] = drive.second_speed;
    }
    PerLane& speed = speeds_[running] = moves;
    for (const Pair& pair : pairs) {
      if (!run_both(pair)) continue;
      speed[static_cast<int>(pair.first)] *= 1 - (1 - pair.first_speed) * moves[static_cast<int>(pair.second)];
      speed[static_cast<int>(pair.second)] *= pair.second_speed;
    }
  }
}

}  // namespace spillway
