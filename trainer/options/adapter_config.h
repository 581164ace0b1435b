// adapter_config.json, by which PEFT describes an adapter: read, checked and written.
// Not here: the adapter of a run (adapter_of.h), its tensors (models/weights_io.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "models/adapter.h"

namespace spillway {

struct AdapterConfig {
  std::int64_t rank = 0;
  double alpha = 0;
  bool rank_stabilized = false;      // use_rslora: the factor is alpha / sqrt(rank), else alpha / rank
  double dropout = 0;                // lora_dropout
  std::vector<std::string> targets;  // names of layers or their last parts; empty: all linear layers
  std::string pattern;               // a regular expression in their place, which only the adapter's tensors are asked about
  std::string base;                  // name of the base model, for others
};

inline constexpr std::int64_t kMostRank = 1 << 14;

// InputError, naming the key, for a kind of adapter that this version does not compute.
AdapterConfig read_adapter_config(const std::filesystem::path& file);
std::string adapter_config_json(const AdapterConfig& config);
AdapterSpec spec_of(const AdapterConfig& config);

}  // namespace spillway
