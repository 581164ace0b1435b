// Machine profiles: shipped ones, hand-written ones, and the faults that are refused.
#include "trainer/machine/profile_file.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "memory/base/error.h"
#include "tests/trainer/temporary_directory.h"
#include "trainer/machine/known_machines.h"

namespace spillway {
namespace {

using nlohmann::json;

const json& made_up() {
  static const json profile = json::parse(content_of(SPILLWAY_TEST_DATA "/machine.json"));
  return profile;
}

TEST(ProfileFile, KnownMachinesAreWholeAndNameTheirSources) {
  EXPECT_GE(known_machines().size(), 5u);
  for (const EmbeddedFile& known : known_machines()) {
    const MachineProfile machine = profile_named(std::string(known.name));
    EXPECT_GT(machine.tier_bytes[Tier::device], 0) << known.name;
    EXPECT_GT(machine.nvme_read_bytes, 0) << known.name;
    const json data = json::parse(known.text);
    EXPECT_GE(data["sources"].size(), 3u) << known.name;
    EXPECT_FALSE(data["assumptions"].get<std::string>().empty());
    EXPECT_TRUE(names_known_machine(std::string(known.name)));
  }
  EXPECT_FALSE(names_known_machine(SPILLWAY_TEST_DATA "/machine.json"));
}

TEST(ProfileFile, MachinesWithDevicesAreToldFromThoseThatCompute) {
  for (const EmbeddedFile& known : known_machines())
    EXPECT_EQ(has_devices(profile_named(std::string(known.name))), known.name != "laptop") << known.name;
  EXPECT_EQ(names_of_known_machines(),
            "a100-server, h100-node-8, h100-server, h200-server, laptop, rtx-3090-desktop, "
            "rtx-4090-desktop, rtx-5060-ti-desktop");
  for (const char* key : {"devices", "upload_bytes", "download_bytes", "host_memory_bytes"}) {
    json profile = made_up();
    EXPECT_FALSE(has_devices(profile_from_json(profile.dump(), "p")));
    profile[key] = 1 << 30;
    if (std::string(key) == "devices") profile[key] = 1;
    EXPECT_TRUE(has_devices(profile_from_json(profile.dump(), "p"))) << key;
  }
}

TEST(ProfileFile, WhatIsWrittenIsRead) {
  MeasuredProfile machine = profile_named(std::string(known_machines()[0].name));
  machine.devices = 3;
  const MachineProfile again = profile_from_json(to_json_text(machine), "again");
  EXPECT_EQ(again.name, machine.name);
  EXPECT_EQ(again.gemm_bf16_flops, machine.gemm_bf16_flops);
  EXPECT_EQ(again.upload_bytes, machine.upload_bytes);
  EXPECT_EQ(again.tier_bytes[Tier::device], machine.tier_bytes[Tier::device]);
  EXPECT_EQ(again.devices, 3);
}

// Profiles that are older than these figures lack them.
TEST(ProfileFile, WhatLanesLoseBesideOthersMayBeLeftOut) {
  const MachineProfile machine = profile_from_json(made_up().dump(), "p");
  EXPECT_EQ(machine.gemm_bf16_extra_rows, 0);
  EXPECT_EQ(machine.compute_beside_read, 1);
  EXPECT_EQ(machine.pointwise_bf16_bytes, 0);
  json profile = made_up();
  profile["gemm_bf16_extra_rows"] = 20, profile["compute_beside_read"] = 0.875, profile["write_beside_compute"] = 0.5;
  profile["pointwise_bf16_bytes"] = 25e9;
  const MachineProfile again = profile_from_json(to_json_text(profile_from_json(profile.dump(), "p")), "again");
  EXPECT_EQ(again.gemm_bf16_extra_rows, 20);
  EXPECT_EQ(again.compute_beside_read, 0.875);
  EXPECT_EQ(again.write_beside_compute, 0.5);
  EXPECT_EQ(again.pointwise_bf16_bytes, 25e9);
}

TEST(ProfileFile, WhatIsMeasuredIsBroughtWithinWhatAProfileMaySay) {
  MachineProfile machine = profile_from_json(made_up().dump(), "p");
  EXPECT_EQ(set_rate(machine, "shared_compute", 0.5), 0.5);
  EXPECT_EQ(set_rate(machine, "shared_compute", 1.02), 1);
  EXPECT_EQ(machine.shared_compute, 1);
  EXPECT_EQ(set_rate(machine, "nvme_read_requests", 0), 0);
}

TEST(ProfileFile, WithoutADriveAllItsRatesAreZero) {
  json profile = made_up();
  for (const char* key : {"nvme_read_bytes", "nvme_write_bytes", "nvme_mixed_read_bytes", "nvme_mixed_write_bytes"})
    profile[key] = 0;
  EXPECT_EQ(profile_from_json(profile.dump(), "p").nvme_read_bytes, 0);
  profile["nvme_write_bytes"] = 1e9;
  EXPECT_REFUSED(profile_from_json(profile.dump(), "p"), InputError, "p: nvme_write_bytes is above 0");
}

TEST(ProfileFile, EachBadEntryIsNamed) {
  for (const auto& [key, value] : made_up().items()) {
    json profile = made_up();
    profile.erase(key);
    EXPECT_REFUSED(profile_from_json(profile.dump(), "p"), InputError, "p: " + key + " is missing");
    for (const json& bad : {json(), json(-1), json("fast"), json(json::array({1})), json(1e19), json(true)}) {
      if (key == "name" && bad.is_string()) continue;
      profile[key] = bad;
      EXPECT_REFUSED(profile_from_json(profile.dump(), "p"), InputError, "p: " + key + " is ");
    }
  }
  const auto refused = [](const char* key, const json& value, const std::string& part) {
    json profile = made_up();
    profile[key] = value;
    EXPECT_REFUSED(profile_from_json(profile.dump(), "p"), InputError, part);
  };
  refused("gemm_bf16_flops", 0, "gemm_bf16_flops is 0; a number from");
  refused("gemm_bf16_flops", 400, "gemm_bf16_flops is 400");  // meant as GFLOP/s
  refused("shared_compute", 1.5, "shared_compute is 1.5");
  refused("operation_s", 20, "operation_s is 20");
  refused("threads", 1.5, "threads is 1.5");
  refused("threads", std::int64_t{1} << 33, "threads is ");
  refused("gemm_bf16_extra_rows", -1, "gemm_bf16_extra_rows is -1");
  refused("gemm_bf16_extra_rows", 1e9, "gemm_bf16_extra_rows is 1000000000");
  refused("compute_beside_read", 0, "compute_beside_read is 0");
  refused("write_beside_compute", 2, "write_beside_compute is 2");
  refused("nvme_mixed_read_bytes", 9e9, "nvme_mixed_read_bytes is 9000000000, faster than nvme_read_bytes alone");
  refused("uplod_bytes", 1e9, "uplod_bytes is no key of a profile");
  refused("upload_bytes", -5, "upload_bytes is -5");
  refused("device_memory_bytes", 1.5, "device_memory_bytes is 1.5");
  EXPECT_REFUSED(profile_from_json(R"({"name": "x", "threads": 2, "memory_bytes": 1e999})", "p"), InputError, "p: ");
  json linked = made_up();
  linked["upload_bytes"] = 1e9, linked["mixed_upload_bytes"] = 2e9;
  EXPECT_REFUSED(profile_from_json(linked.dump(), "p"), InputError,
                 "mixed_upload_bytes is 2000000000, faster than upload_bytes alone, 1000000000");
  EXPECT_REFUSED(profile_from_json("[]", "p"), InputError, "p: the file is []");
  EXPECT_REFUSED(profile_named("rtx-4090-laptop"), InputError, "a machine known by name (a100-server, ");
}

json seen_drive() {
  return {
      {"nvme_read_bytes", 9e8}, {"nvme_mixed_write_bytes", 3e8}, {"at", "2026-11-23T09:00Z"}, {"seconds", 84.5}, {"bytes", 1e11}};
}

TEST(ProfileFile, WhatRunsSawIsKeptBesideWhatWasProbed) {
  json profile = made_up();
  profile["probed_at"] = "2026-11-22T18:30Z";
  profile["seen"] = seen_drive();
  const MeasuredProfile read = profile_from_json(profile.dump(), "p");
  EXPECT_EQ(read.nvme_read_bytes, 1.5e9) << "as probed";
  const MeasuredProfile again = profile_from_json(to_json_text(read), "again");
  EXPECT_EQ(again.probed_at, "2026-11-22T18:30Z");
  ASSERT_TRUE(again.seen);
  EXPECT_EQ(json::parse(to_json_text(again))["seen"], seen_drive());
  EXPECT_EQ(as_seen(again).nvme_read_bytes, 9e8);
}

TEST(ProfileFile, EachBadEntryOfWhatWasSeenIsNamed) {
  const auto refused = [](const json& seen, const std::string& part) {
    json profile = made_up();
    profile["seen"] = seen;
    EXPECT_REFUSED(profile_from_json(profile.dump(), "p"), InputError, "p: " + part);
  };
  const auto with = [](const char* key, const json& value) {
    json seen = seen_drive();
    seen[key] = value;
    return seen;
  };
  const auto without = [](const char* key) {
    json seen = seen_drive();
    seen.erase(key);
    return seen;
  };
  refused(with("nvme_read_bytes", 0), "seen.nvme_read_bytes is 0");
  refused(with("nvme_read_bytes", 1e16), "seen.nvme_read_bytes is ");
  refused(with("nvme_write_bytes", "fast"), "seen.nvme_write_bytes is ");
  refused(with("at", "yesterday"), "seen.at is \"yesterday\", not a time");
  refused(with("at", "2026-11-23T09:00Z\u001b[2J"), "seen.at is ");
  refused(with("at", 5), "seen.at is 5; a string is allowed");
  refused(with("seconds", -1), "seen.seconds is -1");
  refused(with("bytes", json()), "seen.bytes is null");
  refused(with("nvme_read_requests", 100), "seen.nvme_read_requests is no key");
  refused(without("at"), "seen.at is missing");
  refused(without("bytes"), "seen.bytes is missing");
  refused({{"at", "2026-11-23T09:00Z"}, {"seconds", 1}, {"bytes", 1}}, "seen has no rate");
  refused(json::array(), "seen");
  refused(json(), "seen");
  json profile = made_up();
  profile["probed_at"] = "now";
  EXPECT_REFUSED(profile_from_json(profile.dump(), "p"), InputError, "p: probed_at is \"now\", not a time");
  profile = made_up();
  for (const DriveRateName& figure : kDriveRates) profile[std::string(figure.name)] = 0;
  profile["seen"] = seen_drive();
  EXPECT_REFUSED(profile_from_json(profile.dump(), "p"), InputError, "p: seen is there, but nvme_read_bytes is 0");
}

TEST(ProfileFile, RunsLeaveWhatTheySawWhereAProfileIsKept) {
  const TemporaryDirectory directory;
  const std::filesystem::path cache = directory.path() + "/deep/profile.json";
  SeenDrive seen{.rates = {.read = 9e8}, .at = "2026-11-23T09:00Z", .seconds = 10, .bytes = 9e9};
  keep_seen(cache, seen);
  EXPECT_FALSE(std::filesystem::exists(cache)) << "nothing was probed";
  const MeasuredProfile probed = profile_from_json(made_up().dump(), "p");
  keep_profile(cache, probed);
  ASSERT_TRUE(cached_profile(cache));
  EXPECT_FALSE(cached_profile(cache)->seen);
  keep_seen(cache, seen);
  seen.rates.read = 8e8, seen.at = "2026-11-23T10:00Z";
  keep_seen(cache, seen);
  const std::optional<MeasuredProfile> kept = cached_profile(cache);
  ASSERT_TRUE(kept && kept->seen);
  EXPECT_EQ(kept->seen->rates.read, 8e8);
  EXPECT_EQ(kept->seen->at, "2026-11-23T10:00Z");
  EXPECT_EQ(kept->nvme_read_bytes, 1.5e9);
  keep_profile(cache, probed);
  EXPECT_FALSE(cached_profile(cache)->seen) << "a new probe drops it";
  // A place that cannot be written is no error: an existing file stays as it is, and nothing is left beside it.
  {
    const FileSizeLimit limit(16);
    keep_seen(cache, seen);
    keep_profile(directory.path() + "/deep/profile.json/below.json", probed);
  }
  ASSERT_TRUE(cached_profile(cache));
  EXPECT_FALSE(cached_profile(cache)->seen);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path() + "/deep"), {}), 1);
}

}  // namespace
}  // namespace spillway
