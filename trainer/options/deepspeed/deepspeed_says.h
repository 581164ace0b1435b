// Collects what the file says, flag by flag, for the readers of its parts.
// Not here: those readers (deepspeed_meaning.h, deepspeed_rates.h).
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/options/deepspeed/deepspeed_walk.h"
#include "trainer/options/options.h"

namespace spillway {

// One flag as the file has it.
struct DeepSpeedSays {
  std::string flag;  // without dashes
  std::vector<std::string> texts;
  std::string key;          // the key that says it
  bool by_default = false;  // DeepSpeed assumes it where the file says nothing: any flag wins
};

// What is known without the file.
struct BesideDeepSpeed {
  RunOptions options;                                   // of defaults, a loaded run, --config and flags
  std::function<bool(std::string_view flag)> is_given;  // by --config or as a flag
};

class DeepSpeedSayings {
 public:
  // Both must outlive this.
  DeepSpeedSayings(DeepSpeedWalk& walk, const BesideDeepSpeed& beside) : walk_(walk), beside_(beside) {}

  DeepSpeedWalk& walk() { return walk_; }
  const BesideDeepSpeed& beside() const { return beside_; }

  // A flag that is said twice has the value that was said last.
  void add(const std::string& flag, const nlohmann::json& value, const std::string& key);
  void add_texts(const std::string& flag, const std::vector<std::string>& texts, const std::string& key);
  void assume(const std::string& flag, const nlohmann::json& value, const std::string& key);

  // The number of a key; where the file has none, what DeepSpeed assumes; nothing for "auto".
  void real(const std::string& flag, const std::string& key, const nlohmann::json& otherwise);

  bool boolean(std::string_view key) const;         // false where not given
  std::string lowered(std::string_view key) const;  // a text in small letters; empty where not given
  const DeepSpeedSays* said(std::string_view flag) const;

  std::vector<DeepSpeedSays> take() { return std::move(says_); }

 private:
  void put(DeepSpeedSays says);

  DeepSpeedWalk& walk_;
  const BesideDeepSpeed& beside_;
  std::vector<DeepSpeedSays> says_;
};

}  // namespace spillway
