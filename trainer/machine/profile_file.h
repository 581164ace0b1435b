// A machine profile as a file: JSON that a person can read, and the copy that is kept for the next run.
// Not here: measuring (probe.h), the meaning of the figures (memory/plan/machine.h).
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "files/json_place.h"
#include "memory/plan/machine.h"
#include "trainer/machine/drive_rates.h"
#include "trainer/options/options.h"

namespace spillway {

// Plain JSON: name, threads, rates under the struct's names, `probed_at`, and in `seen` the drive's rates in runs since; also
// `sources`, `assumptions` and `samples`. Throws an InputError that names the entry if a rate is missing, is no number or is
// beyond any machine, and for an unknown key.
MeasuredProfile profile_from_json(const std::string& text, const std::string& file);
// The same for an entry of a file.
MeasuredProfile profile_in(const JsonPlace& place);
// The profile that `--profile` names: a file, or else a known machine (known_machines.h).
MeasuredProfile profile_named(const std::string& name_or_file);
// Returns true if the name is a known machine's, which need not be this one: plans can be made for it, but nothing can run with
// its budgets.
bool names_known_machine(const std::string& name_or_file);
nlohmann::ordered_json to_json(const MeasuredProfile& profile);
nlohmann::ordered_json to_json(const SeenDrive& seen);
std::string to_json_text(const MeasuredProfile& profile);
// The names that --profile takes besides files: "h100-server, laptop".
std::string names_of_known_machines();
// Returns true if the machine has devices apart from its CPU; the profile then describes their memory and links.
bool has_devices(const MachineProfile& machine);

// Removes the kept profile, so that the next user measures the machine again. Returns false if there was none.
bool forget_profile(const std::filesystem::path& cache);

// The path of the kept profile for this host, number of threads, devices of the directories and GPU, in $XDG_CACHE_HOME/spillway
// or ~/.cache/spillway. Nothing if neither exists.
std::optional<std::filesystem::path> profile_cache(int threads, const std::vector<NvmeDirectory>& directories,
                                                   const std::optional<GpuHere>& gpu = {});
// The kept profile; nothing if it is damaged, or was measured before the machine last started or by another version of the probe.
std::optional<MeasuredProfile> cached_profile(const std::filesystem::path& cache);
// Replaces the file as a whole or not at all. A file that cannot be written is no error: the next run measures again.
void keep_profile(const std::filesystem::path& cache, const MeasuredProfile& profile);
// Adds the seen rates to the kept profile, if there is one. A file that cannot be written is no error here either.
void keep_seen(const std::filesystem::path& cache, const SeenDrive& seen);

// Sets the rate of that name, which must exist, to the nearest value that a profile may have; returns that value.
double set_rate(MachineProfile& profile, std::string_view name, double value);

std::string host_name();

// The profile's key for the bytes of a tier in memory: "host_memory_bytes".
std::string memory_key(Tier tier);

}  // namespace spillway
