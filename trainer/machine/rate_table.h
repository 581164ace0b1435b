// The figures of a machine's profile, one row for each: its name in files and tables, its field, its unit, and its plausible
// limits.
// Not here: how it is measured (probe.h), the file (profile_file.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "memory/plan/machine.h"

namespace spillway {

// optional: missing in profiles that are older than the figure. may_be_none: 0 says that the machine has no such part.
enum class Presence : std::uint8_t { required, optional, required_may_be_none, optional_may_be_none };
enum class RateUnit : std::uint8_t { flops, bytes, share, seconds, requests, rows };  // flops, bytes and requests are per second

// The owner of a figure. Ranks of a host share the rates of the host and of its drives, and of its processor if that is
// their device; they do not share the rates of a device's own link to the host. alike: a time or a share, the same for all.
enum class RateOf : std::uint8_t { alike, device, host, drive, link };

struct MachineRate {
  std::string_view name;
  double MachineProfile::* rate;
  RateOf of;
  RateUnit unit;
  double least, most;  // beyond these it is in another unit, or a typing error
  Presence presence = Presence::required;

  constexpr bool is_optional() const { return presence == Presence::optional || presence == Presence::optional_may_be_none; }
  constexpr bool may_be_zero() const {
    return presence == Presence::required_may_be_none || presence == Presence::optional_may_be_none;
  }
};

constexpr MachineRate flops_rate(std::string_view name, double MachineProfile::* rate) {
  return {name, rate, RateOf::device, RateUnit::flops, 1e6, 1e18};
}
constexpr MachineRate bytes_rate(std::string_view name, double MachineProfile::* rate, RateOf of,
                                 Presence presence = Presence::required) {
  return {name, rate, of, RateUnit::bytes, kLeastBytesPerS, kMostBytesPerS, presence};
}
constexpr MachineRate share(std::string_view name, double MachineProfile::* rate, Presence presence, double most = 1) {
  return {name, rate, RateOf::alike, RateUnit::share, 0.001, most, presence};
}

inline constexpr MachineRate kMachineRates[] = {
    flops_rate("gemm_bf16_flops", &MachineProfile::gemm_bf16_flops),
    flops_rate("gemm_fp32_flops", &MachineProfile::gemm_fp32_flops),
    flops_rate("attention_bf16_flops", &MachineProfile::attention_bf16_flops),
    flops_rate("attention_fp32_flops", &MachineProfile::attention_fp32_flops),
    bytes_rate("memory_bytes", &MachineProfile::memory_bytes, RateOf::device),
    bytes_rate("update_bytes", &MachineProfile::update_bytes, RateOf::host),
    bytes_rate("nvme_read_bytes", &MachineProfile::nvme_read_bytes, RateOf::drive, Presence::required_may_be_none),
    bytes_rate("nvme_write_bytes", &MachineProfile::nvme_write_bytes, RateOf::drive, Presence::required_may_be_none),
    bytes_rate("nvme_mixed_read_bytes", &MachineProfile::nvme_mixed_read_bytes, RateOf::drive, Presence::required_may_be_none),
    bytes_rate("nvme_mixed_write_bytes", &MachineProfile::nvme_mixed_write_bytes, RateOf::drive, Presence::required_may_be_none),
    {"operation_s", &MachineProfile::operation_s, RateOf::alike, RateUnit::seconds, 1e-9, 1},
    {"nvme_read_requests", &MachineProfile::nvme_read_requests, RateOf::drive, RateUnit::requests, 1, 1e10,
     Presence::optional_may_be_none},
    {"nvme_write_requests", &MachineProfile::nvme_write_requests, RateOf::drive, RateUnit::requests, 1, 1e10,
     Presence::optional_may_be_none},
    {"nvme_sync_s", &MachineProfile::nvme_sync_s, RateOf::alike, RateUnit::seconds, 1e-9, 100, Presence::optional_may_be_none},
    bytes_rate("pointwise_bf16_bytes", &MachineProfile::pointwise_bf16_bytes, RateOf::device, Presence::optional_may_be_none),
    bytes_rate("pointwise_fp32_bytes", &MachineProfile::pointwise_fp32_bytes, RateOf::device, Presence::optional_may_be_none),
    {"gemm_bf16_extra_rows", &MachineProfile::gemm_bf16_extra_rows, RateOf::alike, RateUnit::rows, 1e-3, 1e5,
     Presence::optional_may_be_none},
    {"gemm_fp32_extra_rows", &MachineProfile::gemm_fp32_extra_rows, RateOf::alike, RateUnit::rows, 1e-3, 1e5,
     Presence::optional_may_be_none},
    share("layers_bf16", &MachineProfile::layers_bf16, Presence::optional, 2),
    share("layers_fp32", &MachineProfile::layers_fp32, Presence::optional, 2),
    share("compute_beside_read", &MachineProfile::compute_beside_read, Presence::optional),
    share("compute_beside_write", &MachineProfile::compute_beside_write, Presence::optional),
    share("update_beside_read", &MachineProfile::update_beside_read, Presence::optional),
    share("update_beside_write", &MachineProfile::update_beside_write, Presence::optional),
    share("read_beside_compute", &MachineProfile::read_beside_compute, Presence::optional),
    share("write_beside_compute", &MachineProfile::write_beside_compute, Presence::optional),
    share("shared_compute", &MachineProfile::shared_compute, Presence::required),
    share("shared_update", &MachineProfile::shared_update, Presence::required),
    {"hashed_update", &MachineProfile::hashed_update, RateOf::alike, RateUnit::share, 1, 10, Presence::optional},
    bytes_rate("copy_bytes", &MachineProfile::copy_bytes, RateOf::link, Presence::optional_may_be_none),
    bytes_rate("upload_bytes", &MachineProfile::upload_bytes, RateOf::link, Presence::optional_may_be_none),
    bytes_rate("download_bytes", &MachineProfile::download_bytes, RateOf::link, Presence::optional_may_be_none),
    bytes_rate("mixed_upload_bytes", &MachineProfile::mixed_upload_bytes, RateOf::link, Presence::optional_may_be_none),
    bytes_rate("mixed_download_bytes", &MachineProfile::mixed_download_bytes, RateOf::link, Presence::optional_may_be_none),
    share("update_beside_upload", &MachineProfile::update_beside_upload, Presence::optional_may_be_none),
    share("update_beside_download", &MachineProfile::update_beside_download, Presence::optional_may_be_none),
    share("upload_beside_update", &MachineProfile::upload_beside_update, Presence::optional_may_be_none),
    share("download_beside_update", &MachineProfile::download_beside_update, Presence::optional_may_be_none),
    bytes_rate("network_bytes", &MachineProfile::network_bytes, RateOf::device, Presence::optional_may_be_none)};

// Null if there is none.
constexpr const MachineRate* rate_named(std::string_view name) {
  const MachineRate* found = std::ranges::find(kMachineRates, name, &MachineRate::name);
  return found == std::end(kMachineRates) ? nullptr : found;
}
constexpr const MachineRate* row_of(double MachineProfile::* rate) {
  const MachineRate* found = std::ranges::find(kMachineRates, rate, &MachineRate::rate);
  return found == std::end(kMachineRates) ? nullptr : found;
}
constexpr std::string_view name_of_rate(double MachineProfile::* rate) { return row_of(rate)->name; }

}  // namespace spillway
