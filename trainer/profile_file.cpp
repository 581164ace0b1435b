#include "trainer/profile_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "memory/error.h"
#include "models/posix_file.h"
#include "models/strict_json.h"

namespace spillway {
namespace {

// Raised when figures are measured in another way: what was kept is then measured again.
constexpr int kMeasuredBy = 2;

using Rate = double MachineProfile::*;
struct NamedRate {
  const char* name;
  Rate rate;
  bool disk;
};
constexpr NamedRate kRates[] = {{"gemm_bf16_flops", &MachineProfile::gemm_bf16_flops, false},
                                {"gemm_fp32_flops", &MachineProfile::gemm_fp32_flops, false},
                                {"attention_bf16_flops", &MachineProfile::attention_bf16_flops, false},
                                {"attention_fp32_flops", &MachineProfile::attention_fp32_flops, false},
                                {"memory_bytes", &MachineProfile::memory_bytes, false},
                                {"update_bytes", &MachineProfile::update_bytes, false},
                                {"nvme_read_bytes", &MachineProfile::nvme_read_bytes, true},
                                {"nvme_write_bytes", &MachineProfile::nvme_write_bytes, true},
                                {"nvme_mixed_read_bytes", &MachineProfile::nvme_mixed_read_bytes, true},
                                {"nvme_mixed_write_bytes", &MachineProfile::nvme_mixed_write_bytes, true},
                                {"operation_s", &MachineProfile::operation_s, false},
                                {"shared_compute", &MachineProfile::shared_compute, false},
                                {"shared_update", &MachineProfile::shared_update, false}};

// Seconds since 1970 at which the machine started; 0 where the system does not say.
std::int64_t started_at() {
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("btime ")) return std::atoll(line.c_str() + 6);
  }
  return 0;
}

}  // namespace

void set_rate(MachineProfile& profile, std::string_view name, double value) {
  for (const NamedRate& rate : kRates) {
    if (rate.name != name) continue;
    profile.*rate.rate = value;
    return;
  }
  SPILLWAY_CHECK(false, "a profile has no {}", name);
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

std::optional<std::filesystem::path> profile_cache(int threads, const std::vector<NvmeDirectory>& directories) {
  std::filesystem::path base;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    base = cache;
  } else if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    base = std::filesystem::path(home) / ".cache";
  } else {
    return std::nullopt;
  }
  std::size_t which = 0;
  for (const NvmeDirectory& directory : directories) {
    std::error_code error;
    const auto absolute = std::filesystem::weakly_canonical(directory.path, error);
    which = which * 31 + std::hash<std::string>()(error ? directory.path : absolute.string());
  }
  return base / "spillway" / fmt::format("profile-{}-{}-{:x}.json", host_name(), threads, which);
}

std::optional<MachineProfile> cached_profile(const std::filesystem::path& cache) {
  struct stat status = {};
  if (::stat(cache.c_str(), &status) != 0 || status.st_mtime < started_at()) return std::nullopt;
  try {
    const std::string text = read_text_file(cache, kMiB);
    const auto json = parse_strict_json(text, cache.string());
    if (!json.is_object() || json.value("measured_by", 0) != kMeasuredBy) return std::nullopt;
    return profile_from_json(text, cache.string());
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

void keep_profile(const std::filesystem::path& cache, const MachineProfile& profile) {
  try {
    std::filesystem::create_directories(cache.parent_path());
    write_text_file(cache, to_json_text(profile));
  } catch (const std::exception&) {
    // The next run measures again; that is all.
  }
}

MachineProfile profile_from_json(const std::string& text, const std::string& file) {
  const auto json = parse_strict_json(text, file);
  const auto refuse = [&](std::string_view key, const std::string& why) {
    throw InputError(fmt::format("{}: {} {}", file, key, why), "A profile is what a run without --profile leaves in the cache directory.");
  };
  MachineProfile profile;
  if (!json.is_object()) refuse("the file", "is not a JSON object");
  if (!json.contains("name") || !json["name"].is_string()) refuse("name", "is missing");
  profile.name = json["name"].template get<std::string>();
  if (!json.contains("threads") || !json["threads"].is_number_integer() || json["threads"].template get<int>() < 1) refuse("threads", "is not a positive integer");
  profile.threads = json["threads"].template get<int>();
  for (const NamedRate& rate : kRates) {
    if (!json.contains(rate.name)) refuse(rate.name, "is missing");
    const auto& value = json[rate.name];
    if (!value.is_number()) refuse(rate.name, fmt::format("is {}, not a number", value.dump()));
    const double number = value.template get<double>();
    // A profile of a machine without NVMe has no rates for it.
    if (!std::isfinite(number) || number < 0 || number > 1e18 || (number == 0 && !rate.disk)) refuse(rate.name, fmt::format("is {}, allowed are positive rates up to 1e18", value.dump()));
    profile.*rate.rate = number;
  }
  return profile;
}

std::string to_json_text(const MachineProfile& profile) {
  nlohmann::ordered_json json = {{"name", profile.name}, {"measured_by", kMeasuredBy}, {"threads", profile.threads}};
  for (const NamedRate& rate : kRates) json[rate.name] = profile.*rate.rate;
  return json.dump(1) + "\n";
}

}  // namespace spillway
