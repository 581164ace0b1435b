// A machine in the numbers that the simulator needs: what each lane can do alone, and what it can do beside another.
// Not here: how they are measured (trainer/machine/probe.h), JSON (trainer/machine/profile_file.h).
#pragma once

#include <string>

#include "memory/types.h"

namespace spillway {

// The requests that drives are measured with: those of large moves, as the store cuts them, and small ones, such as rows.
inline constexpr Bytes kRequestBytes = 2 * kMiB, kSmallRequestBytes = 8 * kKiB;

// Bytes a second of any machine: beyond these a figure is in another unit, or a slip of the hand.
inline constexpr double kLeastBytesPerS = 1e4, kMostBytesPerS = 1e15;

// What a CPU multiplies bf16 with: widened to fp32, by AVX-512's products, or by tiles. What kernels need beside their operands
// follows from it.
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
  // A product takes as long as if it had so many rows more: its weights are read, packed or written however few rows there are.
  double gemm_bf16_extra_rows = 0, gemm_fp32_extra_rows = 0;
  // Speed of whole units, as a share of what their products, attention and passes over memory take one by one.
  double layers_bf16 = 1, layers_fp32 = 1;
  double attention_bf16_flops = 0, attention_fp32_flops = 0;  // causal pairs only, forward and backward together
  double memory_bytes = 0;                                    // read + written by a pass over memory
  // The same of units' own passes, norms and activations, which compute as well. 0: not known, and taken to be as memory_bytes.
  double pointwise_bf16_bytes = 0, pointwise_fp32_bytes = 0;
  double update_bytes = 0;  // read + written by the host optimizer
  // So many times as long takes an update that hashes, on the way, the state that it reads and leaves: arithmetic in the same
  // loop, which hardly depends on memory. 1.7 to 1.9 where it was measured; the default is for profiles that do not say.
  double hashed_update = 1.7;
  double nvme_read_bytes = 0, nvme_write_bytes = 0;              // in requests of kRequestBytes, many in flight
  double nvme_mixed_read_bytes = 0, nvme_mixed_write_bytes = 0;  // when both run at once
  // Requests of kSmallRequestBytes, many in flight: each way alone. 0: not known, and taken to cost no more than their bytes.
  double nvme_read_requests = 0, nvme_write_requests = 0;
  double nvme_sync_s = 0;      // until what was written survives a power failure
  double operation_s = 20e-6;  // of starting an operation where its lane waited for another's
  // Speeds, as shares of their own rates, of compute and of the host optimizer when both run: one on a machine where they share
  // no cores.
  double shared_compute = 0.5, shared_update = 0.6;
  // The same of lanes beside the drive, which takes memory bandwidth and the processors' time: one where they share neither.
  double compute_beside_read = 1, compute_beside_write = 1, update_beside_read = 1, update_beside_write = 1;
  double read_beside_compute = 1, write_beside_compute = 1;
  double compute_beside_copy = 1;  // the same of compute beside copies from one memory to another
  // The same of updates on the host and copies beside each other, which share its memory. 0: not known; then updates lose what
  // the copies' bytes are of their own, and copies nothing.
  double update_beside_upload = 0, update_beside_download = 0, upload_beside_update = 0, download_beside_update = 0;
  double copy_bytes = 0;  // copied from one part of memory to another by one thread; 0: not known
  // Of machines with devices of their own; 0 where a profile does not say.
  double upload_bytes = 0, download_bytes = 0;              // copies to the device and from it
  double mixed_upload_bytes = 0, mixed_download_bytes = 0;  // when both run at once; 0: not known, and taken to be as alone
  double network_bytes = 0;                                 // that collectives move into a device and out of it
  By<Tier, Bytes> tier_bytes;                               // of tiers in memory; of the host's, each device has a share
  int devices = 0;
};

// What a lane that moves bytes is measured by, a row each; null: of a lane that has no such figure.
struct LaneRate {
  Lane lane;
  double MachineProfile::* bytes;                     // a second, alone
  double MachineProfile::* mixed_bytes = nullptr;     // beside the other way of its link
  double MachineProfile::* small_requests = nullptr;  // of a drive, which moves in requests
  // Speeds of others beside it, as shares of their own, and of it beside them.
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
                                          {.lane = Lane::network, .bytes = &MachineProfile::network_bytes}};
// Null: the lane computes or commits.
constexpr const LaneRate* rate_of(Lane lane) {
  for (const LaneRate& rate : kLaneRates) {
    if (rate.lane == lane) return &rate;
  }
  return nullptr;
}
// Bytes a second beside the other way of its link.
constexpr double mixed_rate(const MachineProfile& machine, const LaneRate& rate) {
  const double mixed = rate.mixed_bytes != nullptr ? machine.*rate.mixed_bytes : 0;
  return mixed > 0 ? mixed : machine.*rate.bytes;
}

// Seconds that work of a unit takes alone (search/lane_speeds.cpp).
double seconds_of(const MachineProfile& machine, const struct UnitGraph& graph, const struct Work& work);

}  // namespace spillway
