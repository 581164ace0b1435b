// Reads one JSON object of a config.json by ConfigKey. A null where a value is needed is refused by name, and so are two
// spellings of a key that have different values.
// Not here: types and bounds (json_place.h), what the keys mean (config.h), their spellings and defaults (family.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "files/json_place.h"
#include "models/family.h"

namespace spillway {

class ConfigSection {
 public:
  explicit ConfigSection(JsonPlace object) : object_(std::move(object)) {}

  JsonPlace operator[](const char* key) const { return object_.at(key); }
  bool has(const char* key) const { return object_.at(key).is_set(); }
  [[noreturn]] void refuse(const char* key, std::string_view problem, std::string_view help = {}) const {
    object_.at(key).refuse(problem, help);
  }

  // These return `fallback` if the file lacks the key or has a null that counts as absent, and 0 if it has a null that stands for
  // 0 (NullIs).
  std::int64_t whole(const ConfigKey& key, std::int64_t fallback, std::int64_t low, std::int64_t high) const;
  double real(const ConfigKey& key, double fallback, double low, double high) const;
  bool flag(const ConfigKey& key, bool fallback) const;
  std::string text(const ConfigKey& key, const std::string& fallback) const;

  // Null counts as absent.
  std::optional<std::int64_t> optional_whole(const ConfigKey& key, std::int64_t low, std::int64_t high) const;

 private:
  // The spelling that is present and not null. Two spellings that disagree are refused rather than guessed between.
  std::optional<JsonPlace> find(const ConfigKey& key) const;
  // The value for a key that find() does not find.
  template <typename T>
  T missing(const ConfigKey& key, T fallback) const;

  JsonPlace object_;
};

}  // namespace spillway
