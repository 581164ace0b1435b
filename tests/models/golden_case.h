// The results of an independent implementation for one model (tests/data/golden/README.md).
//
// Legend: S steps of B sequences of T tokens.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "files/safetensors.h"
#include "models/config.h"
#include "models/weights_io.h"
#include "tests/golden.h"
#include "tests/models/in_core_runner.h"

namespace spillway::testing {

struct GoldenCase {
  explicit GoldenCase(const std::string& name)
      : directory(golden_directory(name)),
        config(read_model_config(directory / "config.json")),
        weights(directory),
        golden(directory / "golden.safetensors") {
    numbers = nlohmann::json::parse(std::ifstream(directory / "golden.json"));
    steps = numbers.at("steps");
    batch = numbers.at("batch");
    sequence = numbers.at("seq_len");
    const std::vector<std::int32_t> windows = golden_tokens(golden, "tokens");
    for (std::int64_t row = 0; row < steps * batch; ++row) {
      const auto begin = windows.begin() + row * (sequence + 1);
      tokens.insert(tokens.end(), begin, begin + sequence);
      targets.insert(targets.end(), begin + 1, begin + sequence + 1);
    }
    if (golden.find("targets") != nullptr) targets = golden_tokens(golden, "targets");
  }

  std::span<const std::int32_t> of_step(const std::vector<std::int32_t>& all, std::int64_t step) const {
    return std::span(all).subspan(static_cast<std::size_t>(step * batch * sequence), static_cast<std::size_t>(batch * sequence));
  }
  std::vector<float> tensor(const std::string& name) const {
    const StoredTensor* stored = golden.find(name);
    if (stored == nullptr) throw Error(1, "no tensor " + name, "");
    std::vector<float> values(static_cast<std::size_t>(stored->elements));
    golden.read(*stored, 0, values);
    return values;
  }
  // The case's name of a tensor of the graph.
  std::string named(const std::string& tensor) const { return name_in_file(weights, tensor); }
  AdamSettings adam(std::int64_t step) const {
    const auto& optimizer = numbers.at("optimizer");
    return {.lr = numbers.at("schedule").at("lrs")[static_cast<std::size_t>(step)],
            .beta1 = optimizer.at("betas")[0],
            .beta2 = optimizer.at("betas")[1],
            .epsilon = optimizer.at("eps"),
            .decay = optimizer.at("weight_decay"),
            .clip = numbers.at("clip_norm")};
  }

  std::filesystem::path directory;
  ModelConfig config;
  SafetensorsReader weights, golden;
  nlohmann::json numbers;
  std::int64_t steps = 0, batch = 0, sequence = 0;
  std::vector<std::int32_t> tokens, targets;  // [S,B,T]
};

}  // namespace spillway::testing
