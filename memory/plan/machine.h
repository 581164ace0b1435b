// A machine in the numbers that the simulator needs: the rates of each lane alone, and beside another lane.
// Not here: how they are measured (trainer/machine/probe.h), JSON (trainer/machine/profile_file.h).
#pragma once

#include <string>

#include "memory/base/types.h"

namespace spillway {

// Bytes of the requests that drives are measured with: large ones, as the store cuts large moves, and small ones.
inline constexpr Bytes kRequestBytes = 2 * kMiB, kSmallRequestBytes = 8 * kKiB;

// Limits of bytes a second on any machine: a figure beyond them is in another unit, or a slip of the hand.
inline constexpr double kLeastBytesPerS = 1e4, kMostBytesPerS = 1e15;

// The instructions with which a CPU multiplies bf16: widened to fp32, AVX-512's products, or tiles. The workspace that kernels
// need beside their operands follows from them.
enum class Instructions : std::uint8_t { unknown, widened, avx512_bf16, amx_bf16 };
template <>
struct Names<Instructions> {
  static constexpr Named<Instructions> all[] = {
      {"widened", Instructions::widened}, {"avx512_bf16", Instructions::avx512_bf16}, {"amx_bf16", Instructions::amx_bf16}};
};

// Rates are per second, of work that runs alone with all cores.
struct MachineProfile {
  std::string name;
  int threads = 1;
  Instructions instructions = Instructions::unknown;
  double gemm_bf16_flops = 0, gemm_fp32_flops = 0;  // of products with many rows, at the shapes of training
  // Rows to add to a product for its time: its weights are read, packed or written however few rows it has.
  double gemm_bf16_extra_rows = 0, gemm_fp32_extra_rows = 0;
  // Speed of whole units, as a share of the speed of their products, attention and passes over memory one by one.
  double layers_bf16 = 1, layers_fp32 = 1;
  double attention_bf16_flops = 0, attention_fp32_flops = 0;  // causal pairs only, forward and backward together
  double memory_bytes = 0;                                    // read + written by a pass over memory
  // The same for units' own passes, norms and activations, which compute as well. 0: not known, and taken to be memory_bytes.
  double pointwise_bf16_bytes = 0, pointwise_fp32_bytes = 0;
  double update_bytes = 0;  // read + written by the host optimizer
  // Factor on the time of an update that also hashes the state that it reads and leaves: arithmetic in the same loop, which
  // hardly depends on memory. 1.7 to 1.9 where it was measured; the default is for profiles that do not say.
  double hashed_update = 1.7;
  double nvme_read_bytes = 0, nvme_write_bytes = 0;              // in requests of kRequestBytes, many in flight
  double nvme_mixed_read_bytes = 0, nvme_mixed_write_bytes = 0;  // when both run at once
  // Requests of kSmallRequestBytes a second, many in flight, each way alone. 0: not known, and taken to cost no more than their
  // bytes.
  double nvme_read_requests = 0, nvme_write_requests = 0;
  double nvme_sync_s = 0;      // seconds until written bytes survive a power failure
  double operation_s = 20e-6;  // seconds to start an operation whose lane waited for another lane's
  // Speeds of compute and of the host optimizer when both run, as shares of their own rates: 1 on a machine where they share no
  // cores.
  double shared_compute = 0.5, shared_update = 0.6;
  // The same for lanes beside the drive, which takes memory bandwidth and the processors' time: 1 where they share neither.
  double compute_beside_read = 1, compute_beside_write = 1, update_beside_read = 1, update_beside_write = 1;
  double read_beside_compute = 1, write_beside_compute = 1;
  double compute_beside_copy = 1;  // the same for compute beside copies from one memory to another
  // The same for updates on the host and copies beside each other, which share the host's memory. 0: not known; then updates lose
  // the ratio of the copies' rate to their own, and copies lose nothing.
  double update_beside_upload = 0, update_beside_download = 0, upload_beside_update = 0, download_beside_update = 0;
  double copy_bytes = 0;  // copied from one part of memory to another by one thread; 0: not known
  // For machines with devices that have memory of their own; 0 where a profile does not say.
  double upload_bytes = 0, download_bytes = 0;              // copies to the device and from it
  double mixed_upload_bytes = 0, mixed_download_bytes = 0;  // when both run at once; 0: not known, and taken to be as alone
  double network_bytes = 0;                                 // moved by collectives into a device and out of it
  // Speeds of compute, of updates and of collectives beside each other. They are 1 where a link does the work of collectives; on
  // a CPU a thread does, which takes a core's time.
  double compute_beside_network = 1, update_beside_network = 1, network_beside_compute = 1, network_beside_update = 1;
  By<Tier, Bytes> tier_bytes;  // sizes of tiers in memory; each device has a share of the host's
  int devices = 0;
};

// The figures of a lane that moves bytes; null: the lane has no such figure.
struct LaneRate {
  Lane lane;
  double MachineProfile::* bytes;                     // a second, alone
  double MachineProfile::* mixed_bytes = nullptr;     // beside the other way of its link
  double MachineProfile::* small_requests = nullptr;  // of a drive, which moves in requests
  // Speeds of compute and updates beside the lane, and of the lane beside them, as shares of their own rates.
  double MachineProfile::*compute_beside = nullptr, MachineProfile::*beside_compute = nullptr;
  double MachineProfile::*update_beside = nullptr, MachineProfile::*beside_update = nullptr;
};
inline constexpr LaneRate kLaneRates[] = {{.lane = Lane::upload,
                                           .bytes = &MachineProfile::upload_bytes,
                                           .mixed_bytes = &MachineProfile::mixed_upload_bytes,
                                           .compute_beside = &MachineProfile::compute_beside_copy,
                                           .update_beside = &MachineProfile::update_beside_upload,
                                           .beside_update = &MachineProfile::upload_beside_update},
                                          {.lane = Lane::download,
                                           .bytes = &MachineProfile::download_bytes,
                                           .mixed_bytes = &MachineProfile::mixed_download_bytes,
                                           .compute_beside = &MachineProfile::compute_beside_copy,
                                           .update_beside = &MachineProfile::update_beside_download,
                                           .beside_update = &MachineProfile::download_beside_update},
                                          {.lane = Lane::nvme_read,
                                           .bytes = &MachineProfile::nvme_read_bytes,
                                           .mixed_bytes = &MachineProfile::nvme_mixed_read_bytes,
                                           .small_requests = &MachineProfile::nvme_read_requests,
                                           .compute_beside = &MachineProfile::compute_beside_read,
                                           .beside_compute = &MachineProfile::read_beside_compute,
                                           .update_beside = &MachineProfile::update_beside_read},
                                          {.lane = Lane::nvme_write,
                                           .bytes = &MachineProfile::nvme_write_bytes,
                                           .mixed_bytes = &MachineProfile::nvme_mixed_write_bytes,
                                           .small_requests = &MachineProfile::nvme_write_requests,
                                           .compute_beside = &MachineProfile::compute_beside_write,
                                           .beside_compute = &MachineProfile::write_beside_compute,
                                           .update_beside = &MachineProfile::update_beside_write},
                                          {.lane = Lane::network,
                                           .bytes = &MachineProfile::network_bytes,
                                           .compute_beside = &MachineProfile::compute_beside_network,
                                           .beside_compute = &MachineProfile::network_beside_compute,
                                           .update_beside = &MachineProfile::update_beside_network,
                                           .beside_update = &MachineProfile::network_beside_update}};
// The lane's row; null: the lane computes or commits.
constexpr const LaneRate* rate_of(Lane lane) {
  for (const LaneRate& rate : kLaneRates) {
    if (rate.lane == lane) return &rate;
  }
  return nullptr;
}
// Bytes a second of a lane beside the other way of its link.
constexpr double mixed_rate(const MachineProfile& machine, const LaneRate& rate) {
  const double mixed = rate.mixed_bytes != nullptr ? machine.*rate.mixed_bytes : 0;
  return mixed > 0 ? mixed : machine.*rate.bytes;
}

// Seconds that a unit's work takes alone (search/lane_speeds.cpp).
double seconds_of(const MachineProfile& machine, const struct UnitGraph& graph, const struct Work& work);

}  // namespace spillway
