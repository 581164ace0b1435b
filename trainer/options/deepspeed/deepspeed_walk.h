// Goes through DeepSpeed's JSON by its table of keys: checks names and types, and collects what is to be said about them.
// Not here: what the values mean (deepspeed_meaning.h).
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

struct DeepSpeedWalk {
  // Of the keys that are used, by path ("optimizer.params.lr"): booleans, whole numbers, numbers, texts, lists of numbers, and
  // null for a block. "auto" and null count as not given.
  std::map<std::string, nlohmann::json, std::less<>> values;
  std::vector<std::string> automatic;                                   // paths whose value is "auto"
  std::vector<std::string> problems;                                    // each one sentence without its end
  std::vector<std::pair<std::string, std::vector<std::string>>> notes;  // the reason, and the keys that it is of

  const nlohmann::json* find(std::string_view path) const;
  bool is_automatic(std::string_view path) const;
  bool has(std::string_view path) const { return find(path) != nullptr; }
  // `found` and `allowed` as every message has them.
  void refuse(std::string_view key, std::string_view found, std::string_view allowed);
  void note(std::string_view reason, std::string key);
};

DeepSpeedWalk walk_deepspeed(const nlohmann::json& root);

}  // namespace spillway
