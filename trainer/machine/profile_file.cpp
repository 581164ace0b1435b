#include "trainer/machine/profile_file.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "files/json_place.h"
#include "files/json_text.h"
#include "files/posix_file.h"
#include "files/strict_json.h"
#include "memory/base/error.h"
#include "trainer/machine/disk_device.h"
#include "trainer/machine/known_machines.h"
#include "trainer/machine/rate_table.h"

namespace spillway {
namespace {

constexpr bool is_in_files(double MachineProfile::* rate) { return rate == nullptr || row_of(rate) != nullptr; }
// Every rate of a lane is in files, except compute's share beside copies, and those of collectives, which the number of threads
// determines (trainer/plan/planned_run.cpp).
constexpr bool are_in_files(const LaneRate& rate) {
  if (rate.lane == Lane::network) return is_in_files(rate.bytes);
  const bool is_compute_in_files =
      rate.compute_beside == &MachineProfile::compute_beside_copy || is_in_files(rate.compute_beside);
  return is_compute_in_files && is_in_files(rate.bytes) && is_in_files(rate.mixed_bytes) && is_in_files(rate.small_requests) &&
         is_in_files(rate.update_beside) && is_in_files(rate.beside_update) && is_in_files(rate.beside_compute);
}
static_assert(std::ranges::all_of(kLaneRates, are_in_files), "a rate of a lane has no row in kMachineRates (rate_table.h)");

// Raise it when a figure is measured in another way: kept profiles are then measured again.
constexpr int kMeasurementVersion = 16;

// Keys other than the rates.
constexpr std::string_view kOtherKeys[] = {"name", "threads", "instructions", "measured_by", "probed_at",
                                           "seen", "samples", "sources",      "assumptions", "devices"};

constexpr std::string_view kHelp = "A profile is what `spillway probe --format json` writes.";

bool is_key(const std::string& key) {
  const auto names_memory = [&](Tier tier) { return in_memory(tier) && key == memory_key(tier); };
  return rate_named(key) != nullptr || std::ranges::find(kOtherKeys, key) != std::end(kOtherKeys) ||
         std::ranges::any_of(kAll<Tier>, names_memory);
}

double rate_from(const JsonPlace& place, const MachineRate& rate) {
  constexpr double any = std::numeric_limits<double>::max();
  if (rate.may_be_zero() && place.number(-any, any) == 0) return 0;
  return place.number(rate.least, rate.most);
}

// Lanes that slow each other are no faster together than alone, and a drive has all its rates or none.
void check_links(const MachineProfile& profile, const JsonPlace& place) {
  const bool any = profile.nvme_read_bytes > 0;
  for (const std::string_view key : {"nvme_write_bytes", "nvme_mixed_read_bytes", "nvme_mixed_write_bytes"}) {
    const bool has = place.at(key).number(0, std::numeric_limits<double>::max()) > 0;
    if (has != any)
      place.at(key).refuse(fmt::format("is {}, but nvme_read_bytes is {}: a machine has all rates of a drive or none",
                                       has ? "above 0" : "0", any ? "above 0" : "0"));
  }
  for (const LaneRate& rate : kLaneRates) {
    const double alone = profile.*rate.bytes, mixed = mixed_rate(profile, rate);
    if (alone > 0 && mixed > alone)
      place.at(name_of_rate(rate.mixed_bytes))
          .refuse(fmt::format("is {}, faster than {} alone, {}", mixed, name_of_rate(rate.bytes), alone));
  }
}

std::string minute_from(const JsonPlace& place) {
  const std::string& text = place.text();
  if (!is_utc_minute(text)) place.refuse(fmt::format("is {}, not a time as 2026-11-23T09:00Z", shown_name(text)));
  return text;
}

SeenDrive seen_from(const JsonPlace& place) {
  SeenDrive seen;
  int rates = 0;
  for (const DriveRateName& figure : kDriveRates) {
    if (!place.has(figure.name)) continue;
    seen.rates.*figure.rate = place.at(figure.name).number(kLeastBytesPerS, kMostBytesPerS);
    ++rates;
  }
  if (rates == 0) place.refuse("has no rate");
  seen.at = minute_from(place.at("at"));
  seen.seconds = place.at("seconds").number(0, 1e9);
  seen.bytes = place.at("bytes").number(0, 1e18);
  for (const std::string& key : place.keys()) {
    if (std::ranges::find(kDriveRates, key, &DriveRateName::name) == kDriveRates.end() && key != "at" && key != "seconds" &&
        key != "bytes")
      place.at(key).refuse("is no key of what was seen of a drive");
  }
  return seen;
}

MeasuredProfile profile_of(const EmbeddedFile& machine) {
  return profile_from_json(std::string(machine.text), fmt::format("profile {}", machine.name));
}

// Time at which the machine started, in seconds since 1970; 0 if the system does not say.
std::int64_t started_at() {
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("btime ")) return std::atoll(line.c_str() + 6);
  }
  return 0;
}

}  // namespace

double set_rate(MachineProfile& profile, std::string_view name, double value) {
  const MachineRate* rate = rate_named(name);
  SPILLWAY_CHECK(rate != nullptr, "a profile has no {}", name);
  return profile.*rate->rate = rate->may_be_zero() && value == 0 ? 0 : std::clamp(value, rate->least, rate->most);
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

std::optional<std::filesystem::path> profile_cache(int threads, const std::vector<NvmeDirectory>& directories,
                                                   const std::optional<GpuHere>& gpu) {
  std::filesystem::path base;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    base = cache;
  } else if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    base = std::filesystem::path(home) / ".cache";
  } else {
    return std::nullopt;
  }
  std::size_t which = 0;
  for (const NvmeDirectory& directory : directories) which = which * 31 + std::hash<std::string>()(device_of(directory.path));
  const std::string device = gpu ? fmt::format("-cuda{}-{:x}", gpu->of_ranks.front(), std::hash<std::string>()(gpu->name)) : "";
  return base / "spillway" / fmt::format("profile-{}-{}-{:x}{}.json", host_name(), threads, which, device);
}

std::optional<MeasuredProfile> cached_profile(const std::filesystem::path& cache) {
  struct stat status = {};
  if (::stat(cache.c_str(), &status) != 0 || status.st_mtime < started_at()) return std::nullopt;
  try {
    const std::string text = read_text_file(cache, kMiB);
    const auto json = parse_strict_json(text, cache.string());
    if (!json.is_object() || json.value("measured_by", 0) != kMeasurementVersion) return std::nullopt;
    return profile_from_json(text, cache.string());
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

void keep_profile(const std::filesystem::path& cache, const MeasuredProfile& profile) {
  // Several processes may keep a profile at the same time: each writes a name of its own and renames it.
  std::filesystem::path mine = cache;
  mine += fmt::format(".{}", getpid());
  try {
    std::filesystem::create_directories(cache.parent_path());
    write_text_file(mine, to_json_text(profile));
    std::filesystem::rename(mine, cache);
  } catch (const std::exception&) {
    // A profile that cannot be kept is no error: the next run measures again.
    std::error_code ignored;
    std::filesystem::remove(mine, ignored);
  }
}

bool forget_profile(const std::filesystem::path& cache) {
  std::error_code ignored;
  return std::filesystem::remove(cache, ignored);
}

void keep_seen(const std::filesystem::path& cache, const SeenDrive& seen) {
  std::optional<MeasuredProfile> kept = cached_profile(cache);
  if (!kept || kept->nvme_read_bytes <= 0) return;
  kept->seen = seen;
  keep_profile(cache, *kept);
}

MeasuredProfile profile_from_json(const std::string& text, const std::string& file) {
  const auto json = parse_strict_json(text, file);
  return profile_in(JsonPlace(json, file, kHelp));
}

MeasuredProfile profile_in(const JsonPlace& place) {
  MeasuredProfile profile;
  profile.name = place.at("name").text();
  profile.threads = static_cast<int>(place.at("threads").integer(1, 1 << 16));
  if (place.has("instructions")) profile.instructions = place.at("instructions").named<Instructions>();
  for (const MachineRate& rate : kMachineRates) {
    if (rate.is_optional() && !place.has(rate.name)) continue;
    profile.*rate.rate = rate_from(place.at(rate.name), rate);
  }
  check_links(profile, place);
  constexpr std::int64_t most_memory = std::int64_t{1} << 50;
  for (const Tier tier : kAll<Tier>) {
    const std::string key = memory_key(tier);
    if (in_memory(tier) && place.has(key)) profile.tier_bytes[tier] = place.at(key).integer(0, most_memory);
  }
  if (place.has("devices")) profile.devices = static_cast<int>(place.at("devices").integer(0, 1 << 16));
  if (place.has("probed_at")) profile.probed_at = minute_from(place.at("probed_at"));
  if (place.has("seen")) {
    const JsonPlace seen = place.at("seen");
    if (profile.nvme_read_bytes <= 0) seen.refuse("is there, but nvme_read_bytes is 0: nothing is seen of a drive that is none");
    profile.seen = seen_from(seen);
  }
  for (const std::string& key : place.keys()) {
    if (!is_key(key)) place.at(key).refuse("is no key of a profile");
  }
  return profile;
}

std::string memory_key(Tier tier) { return fmt::format("{}_memory_bytes", name_of(tier)); }

bool names_known_machine(const std::string& name_or_file) {
  std::error_code ignored;
  return std::ranges::find(known_machines(), name_or_file, &EmbeddedFile::name) != known_machines().end() &&
         !std::filesystem::exists(name_or_file, ignored);
}

MeasuredProfile profile_named(const std::string& name_or_file) {
  std::error_code ignored;
  if (std::filesystem::exists(name_or_file, ignored)) return profile_from_json(read_text_file(name_or_file, kMiB), name_or_file);
  for (const EmbeddedFile& machine : known_machines()) {
    if (machine.name == name_or_file) return profile_of(machine);
  }
  throw InputError(fmt::format("--profile: found {}, allowed: a file that is there, or a machine known by name ({})",
                               shown_name(name_or_file), names_of_known_machines()),
                   std::string(kHelp));
}

std::string names_of_known_machines() {
  std::string names;
  for (const EmbeddedFile& machine : known_machines()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", machine.name);
  }
  return names;
}

bool has_devices(const MachineProfile& machine) {
  return machine.devices > 0 || machine.upload_bytes > 0 || machine.download_bytes > 0 || machine.tier_bytes[Tier::host] > 0;
}

nlohmann::ordered_json to_json(const SeenDrive& seen) {
  nlohmann::ordered_json json;
  for (const DriveRateName& figure : kDriveRates) {
    if (seen.rates.*figure.rate > 0) json[std::string(figure.name)] = seen.rates.*figure.rate;
  }
  json["at"] = seen.at;
  json["seconds"] = seen.seconds;
  json["bytes"] = seen.bytes;
  return json;
}

nlohmann::ordered_json to_json(const MeasuredProfile& profile) {
  nlohmann::ordered_json json = {{"name", profile.name}, {"measured_by", kMeasurementVersion}, {"threads", profile.threads}};
  if (const std::string_view name = name_of(profile.instructions); !name.empty()) json["instructions"] = name;
  if (!profile.probed_at.empty()) json["probed_at"] = profile.probed_at;
  for (const MachineRate& rate : kMachineRates) {
    if (!rate.is_optional() || profile.*rate.rate > 0) json[std::string(rate.name)] = profile.*rate.rate;
  }
  for (const Tier tier : kAll<Tier>) {
    if (profile.tier_bytes[tier] > 0) json[memory_key(tier)] = profile.tier_bytes[tier];
  }
  if (profile.devices > 0) json["devices"] = profile.devices;
  if (profile.seen) json["seen"] = to_json(*profile.seen);
  return json;
}

std::string to_json_text(const MeasuredProfile& profile) { return json_text(to_json(profile)); }

}  // namespace spillway
