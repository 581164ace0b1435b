// A machine profile as a file: JSON that a person can read, and the copy that is kept for the next run.
// Not here: measuring (probe.h), what the numbers mean (memory/machine.h).
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "files/json_place.h"
#include "memory/machine.h"
#include "trainer/machine/drive_rates.h"
#include "trainer/options/options.h"

namespace spillway {

// JSON, plain: name, threads, rates by the names of the struct, `probed_at`, and in `seen` what runs have seen of the drive
// since; beside these `sources`, `assumptions`, `samples`. InputError, with the entry, for rates that are missing, no numbers, or
// beyond what any machine does; and for keys that mean nothing.
MeasuredProfile profile_from_json(const std::string& text, const std::string& file);
// The same of an entry of a file.
MeasuredProfile profile_in(const JsonPlace& place);
// What `--profile` names: a file, or else a known machine (known_machines.h).
MeasuredProfile profile_named(const std::string& name_or_file);
// Whether that is a machine which need not be this one: plans can be made for it, but nothing can be run by its budgets.
bool names_known_machine(const std::string& name_or_file);
nlohmann::ordered_json to_json(const MeasuredProfile& profile);
nlohmann::ordered_json to_json(const SeenDrive& seen);
std::string to_json_text(const MeasuredProfile& profile);
// "h100-server, laptop": what --profile takes beside files.
std::string names_of_known_machines();
// Whether the machine has devices apart from its CPU, whose memory and links a profile then speaks of.
bool has_devices(const MachineProfile& machine);

// So that who wants one next measures the machine again. False where there was none.
bool forget_profile(const std::filesystem::path& cache);

// Where the profile of this host, number of threads, the devices of the directories and its GPU is kept: in
// $XDG_CACHE_HOME/spillway or ~/.cache/spillway. Nothing where there is neither.
std::optional<std::filesystem::path> profile_cache(int threads, const std::vector<NvmeDirectory>& directories,
                                                   const std::optional<GpuHere>& gpu = {});
// What is kept there; nothing where it is damaged, was measured before the machine last started, or by another way of measuring.
std::optional<MeasuredProfile> cached_profile(const std::filesystem::path& cache);
// The file is there whole or as it was. One that cannot be written is no error: the next run measures again.
void keep_profile(const std::filesystem::path& cache, const MeasuredProfile& profile);
// Beside what was probed, where that is kept. Nor is it an error where this cannot be written.
void keep_seen(const std::filesystem::path& cache, const SeenDrive& seen);

// Sets the rate of that name, which must be one, as near to the value as a profile may say; returns what it is then.
double set_rate(MachineProfile& profile, std::string_view name, double value);

std::string host_name();

// What a profile calls the bytes of a tier in memory: "host_memory_bytes".
std::string memory_key(Tier tier);

}  // namespace spillway
