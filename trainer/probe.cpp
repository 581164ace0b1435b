#include "trainer/probe.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <vector>

#include "memory/arena.h"
#include "memory/error.h"
#include "models/attention_ops.h"
#include "models/ops.h"
#include "models/posix_file.h"
#include "models/strict_json.h"
#include "nvme/store.h"
#include "offload/host_adamw.h"

namespace spillway {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_of(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The best of a few tries: what the machine can do, not what it did beside something else.
double best_of(int tries, const std::function<void()>& work) {
  work();
  double best = seconds_of(work);
  for (int i = 1; i < tries; ++i) best = std::min(best, seconds_of(work));
  return best;
}

void fill(std::byte* data, Bytes bytes, DType dtype) {
  const std::int64_t elements = bytes / size_of(dtype);
  for (std::int64_t i = 0; i < elements; ++i) {
    const float value = 0.01f * static_cast<float>((i * 37) % 101 - 50);
    if (dtype == DType::float32) {
      reinterpret_cast<float*>(data)[i] = value;
    } else {
      reinterpret_cast<BFloat16*>(data)[i] = split_master(value).high;
    }
  }
}

double gemm_rate(const ThreadPool& pool, DType dtype) {
  constexpr std::int64_t n = 512, in = 1024, out = 2048;
  ops::MatmulEngine engine(pool.threads());
  const ops::GemmSpec forward = ops::linear_forward(dtype, n, in, out);
  const ops::GemmSpec input = ops::linear_input_gradient(dtype, n, in, out, dtype);
  const ops::GemmSpec weight = ops::linear_weight_gradient(dtype, n, in, out, ops::Store::write);
  const Bytes scratch = std::max({engine.scratch_bytes(forward), engine.scratch_bytes(input), engine.scratch_bytes(weight)});
  const Bytes x = n * in * 4, w = in * out * 4, y = n * out * 4;
  const Arena arena(x + 2 * w + y + scratch, "probe of matrix products");
  std::byte *px = arena.at(0), *pw = arena.at(x), *py = arena.at(x + w), *pdw = arena.at(x + w + y), *ps = arena.at(x + 2 * w + y);
  fill(px, x, dtype), fill(pw, w, dtype), fill(py, y, dtype);
  const double seconds = best_of(3, [&] {
    engine.run(pool, forward, {.a = px, .b = pw, .c = py}, ps);
    engine.run(pool, input, {.a = py, .b = pw, .c = px}, ps);
    engine.run(pool, weight, {.a = py, .b = px, .c = pdw}, ps);
  });
  return 3 * 2.0 * n * in * out / seconds;
}

template <typename E>
double attention_rate(const ThreadPool& pool) {
  const ops::AttentionShape shape{.sequences = 1, .queries = 512, .keys = 512, .heads = 8, .kv_heads = 2, .head_dim = 64, .scale = 0.125f};
  constexpr DType dtype = sizeof(E) == 4 ? DType::float32 : DType::bfloat16;
  const std::int64_t rows = 512, q = 8 * 64, kv = 2 * 64, row = q + 2 * kv;
  const Bytes scratch = std::max(ops::attention_forward_scratch_bytes(shape, dtype, pool.threads()), ops::attention_backward_scratch_bytes(shape, dtype, pool.threads()));
  const Bytes matrix = rows * row * 4;
  const Arena arena(4 * matrix + rows * 8 * 4 + scratch, "probe of attention");
  auto at = [&](int index) { return reinterpret_cast<E*>(arena.at(index * matrix)); };
  E *qkv = at(0), *dqkv = at(1), *o = at(2), *d_o = at(3);
  auto* lse = reinterpret_cast<float*>(arena.at(4 * matrix));
  std::byte* work = arena.at(4 * matrix + rows * 8 * 4);
  fill(arena.at(0), matrix, dtype);
  fill(arena.at(3 * matrix), matrix, dtype);
  const double seconds = best_of(3, [&] {
    const ops::AttentionInputs<E> in{{qkv, row}, {qkv + q, row}, {qkv + q + kv, row}};
    ops::attention_forward<E>(pool, shape, in, {o, q}, lse, work);
    ops::attention_backward<E>(pool, shape, in, {{o, q}, lse, {d_o, q}}, {{dqkv, row}, {dqkv + q, row}, {dqkv + q + kv, row}}, work);
  });
  const double pairs = 0.5 * 512 * 513;
  return 7 * 2.0 * pairs * 64 * 8 / seconds;  // two products forward, five backward
}

struct Bandwidth {
  double pass = 0, update = 0;
};

Bandwidth memory_rates(const ThreadPool& pool) {
  constexpr std::int64_t elements = 3 << 20;  // 48 MiB of state and gradient: beyond the caches
  const Arena arena(16 * elements, "probe of memory");
  auto* high = reinterpret_cast<BFloat16*>(arena.at(0));
  auto* low = reinterpret_cast<std::int16_t*>(arena.at(2 * elements));
  auto *m = reinterpret_cast<float*>(arena.at(4 * elements)), *v = reinterpret_cast<float*>(arena.at(8 * elements)), *g = reinterpret_cast<float*>(arena.at(12 * elements));
  arena.prefault(pool);
  const ExactState state{high, low, m, v};
  Bandwidth rates;
  rates.update = 28.0 * elements / best_of(3, [&] { host_adamw(pool, {.lr = 1e-4}, {.count = elements}, source_of(state), g, state); });
  rates.pass = 12.0 * elements / best_of(3, [&] { ops::accumulate(pool, elements, m, g); });
  return rates;
}

struct DiskRates {
  double read = 0, write = 0, mixed_read = 0, mixed_write = 0;
};

DiskRates disk_rates(const std::vector<NvmeDirectory>& directories) {
  constexpr Bytes file = 256 * kMiB, segment = 16 * kMiB;
  StoreOptions options;
  for (const NvmeDirectory& directory : directories) options.directories.push_back({directory.path, directory.size.value_or(0)});
  options.bytes = 2 * file;
  Store store(options);
  const Arena arena(2 * segment, "probe of NVMe");
  StoreChannel reader = store.open_channel({}), writer = store.open_channel({});
  const auto pass = [&](StoreChannel& channel, IoDirection direction, Bytes base, std::byte* memory) {
    std::optional<IoTicket> before;
    for (Bytes at = 0; at < file; at += segment) {
      const IoSegment move{base + at, memory, segment};
      const IoTicket ticket = channel.start(direction, {&move, 1});
      if (before) channel.wait(*before);
      before = ticket;
    }
    channel.wait(*before);
  };
  pass(writer, IoDirection::write, 0, arena.at(0));
  pass(writer, IoDirection::write, file, arena.at(0));
  DiskRates rates;
  rates.write = static_cast<double>(file) / seconds_of([&] { pass(writer, IoDirection::write, 0, arena.at(0)); });
  rates.read = static_cast<double>(file) / seconds_of([&] { pass(reader, IoDirection::read, 0, arena.at(0)); });
  double read_s = 0, write_s = 0;
  std::thread other([&] { read_s = seconds_of([&] { pass(reader, IoDirection::read, 0, arena.at(0)); }); });
  write_s = seconds_of([&] { pass(writer, IoDirection::write, file, arena.at(segment)); });
  other.join();
  // The slower of the two had the device to itself at the end: over the shorter time both ran at their mixed rates.
  const double both_s = std::min(read_s, write_s), rest_s = std::max(read_s, write_s) - both_s;
  const double alone = read_s > write_s ? rates.read : rates.write;
  const double slower = std::max(static_cast<double>(file) - rest_s * alone, 0.05 * static_cast<double>(file)) / both_s;
  const double faster = static_cast<double>(file) / both_s;
  rates.mixed_read = std::min(rates.read, read_s > write_s ? slower : faster);
  rates.mixed_write = std::min(rates.write, read_s > write_s ? faster : slower);
  return rates;
}

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

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

std::optional<std::filesystem::path> cache_file(const ThreadPool& pool, const std::vector<NvmeDirectory>& directories) {
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
  return base / "spillway" / fmt::format("profile-{}-{}-{:x}.json", host_name(), pool.threads(), which);
}

}  // namespace

MachineProfile quick_probe(const ThreadPool& pool, const std::vector<NvmeDirectory>& directories) {
  MachineProfile profile;
  profile.name = host_name();
  profile.threads = pool.threads();
  profile.gemm_bf16_flops = gemm_rate(pool, DType::bfloat16);
  profile.gemm_fp32_flops = gemm_rate(pool, DType::float32);
  profile.attention_bf16_flops = attention_rate<BFloat16>(pool);
  profile.attention_fp32_flops = attention_rate<float>(pool);
  const Bandwidth memory = memory_rates(pool);
  profile.memory_bytes = memory.pass;
  profile.update_bytes = memory.update;
  if (!directories.empty()) {
    const DiskRates disk = disk_rates(directories);
    profile.nvme_read_bytes = disk.read;
    profile.nvme_write_bytes = disk.write;
    profile.nvme_mixed_read_bytes = disk.mixed_read;
    profile.nvme_mixed_write_bytes = disk.mixed_write;
  }
  return profile;
}

MachineProfile profile_for(const RunOptions& options, const ThreadPool& pool) {
  const auto& directories = options.memory.nvme;
  if (!options.memory.profile.empty()) return profile_from_json(read_text_file(options.memory.profile, kMiB), options.memory.profile);
  const auto cache = cache_file(pool, directories);
  if (cache && std::filesystem::exists(*cache)) {
    try {
      return profile_from_json(read_text_file(*cache, kMiB), cache->string());
    } catch (const Error&) {
      // Of another version, or damaged: measure again.
    }
  }
  const MachineProfile profile = quick_probe(pool, directories);
  if (cache) {
    try {
      std::filesystem::create_directories(cache->parent_path());
      write_text_file(*cache, to_json_text(profile));
    } catch (const std::exception&) {
      // The next run measures again; that is all.
    }
  }
  return profile;
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
  nlohmann::ordered_json json = {{"name", profile.name}, {"threads", profile.threads}};
  for (const NamedRate& rate : kRates) json[rate.name] = profile.*rate.rate;
  return json.dump(1) + "\n";
}

}  // namespace spillway
