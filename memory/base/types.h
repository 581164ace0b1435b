// The few words that every folder shares: sizes, element types, tiers, categories, lanes.
// Not here: anything that owns memory or does work.
#pragma once

#include <cstdint>
#include <string_view>

#include "memory/base/names.h"

namespace spillway {

using Bytes = std::int64_t;

inline constexpr Bytes kKiB = 1024;
inline constexpr Bytes kMiB = 1024 * kKiB;
inline constexpr Bytes kGiB = 1024 * kMiB;

// Every extent on every tier starts at a multiple of this: a page, a direct-I/O block, 64 cache lines.
inline constexpr Bytes kExtentAlignment = 4096;

enum class DType : std::uint8_t { float32, bfloat16, float16 };
constexpr Bytes size_of(DType dtype) { return dtype == DType::float32 ? 4 : 2; }
template <>
struct Names<DType> {
  static constexpr Named<DType> all[] = {{"bf16", DType::bfloat16}, {"fp32", DType::float32}, {"fp16", DType::float16}};
};

// A tier on which bytes rest. With --device cpu, `device` is a budgeted part of RAM and `host` is unused; cpu-apart and GPUs have
// all three.
enum class Tier : std::uint8_t { device, host, nvme };
template <>
struct Names<Tier> {
  static constexpr Named<Tier> all[] = {{"device", Tier::device}, {"host", Tier::host}, {"nvme", Tier::nvme}};
};

// True when bytes on the tier have an address.
constexpr bool in_memory(Tier tier) { return tier != Tier::nvme; }
// True when an optimizer may run on the tier.
constexpr bool computes(Tier tier) { return tier == Tier::device || tier == Tier::host; }

// The purpose of bytes.
enum class Category : std::uint8_t { parameters, optimizer, gradients, activations, staging };
template <>
struct Names<Category> {
  static constexpr Named<Category> all[] = {{"parameters", Category::parameters},
                                            {"optimizer", Category::optimizer},
                                            {"gradients", Category::gradients},
                                            {"activations", Category::activations},
                                            {"staging", Category::staging}};
};

// A resource that runs one operation at a time, or starts several moves of a drive, in the order of the plan.
enum class Lane : std::uint8_t { compute, upload, download, nvme_read, nvme_write, update, network, commit };
template <>
struct Names<Lane> {
  static constexpr Named<Lane> all[] = {
      {"compute", Lane::compute},       {"upload", Lane::upload}, {"download", Lane::download}, {"nvme_read", Lane::nvme_read},
      {"nvme_write", Lane::nvme_write}, {"update", Lane::update}, {"network", Lane::network},   {"commit", Lane::commit}};
};

constexpr Bytes round_up(Bytes bytes, Bytes multiple) { return (bytes + multiple - 1) / multiple * multiple; }

}  // namespace spillway
