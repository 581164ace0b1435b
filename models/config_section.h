// One JSON object of a config.json with typed, checked access by ConfigKey: what is of the wrong type, out of bounds, null where
// a value is needed or said twice differently is refused by name (InputError). Not here: what the keys mean (config.h), their
// spellings and defaults (family.h).
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>

#include "models/family.h"

namespace spillway {

class ConfigSection {
 public:
  using Json = nlohmann::json;

  ConfigSection(const Json& object, std::string file, std::string prefix = {})
      : object_(object), file_(std::move(file)), prefix_(std::move(prefix)) {}

  bool has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }
  bool is_null(const char* key) const { return object_.contains(key) && object_[key].is_null(); }
  const Json& operator[](const char* key) const { return object_[key]; }
  const std::string& file() const { return file_; }

  [[noreturn]] void refuse(const std::string& key, const std::string& problem, std::string help = {}) const;

  // `fallback` where the file has no such key, or null that says so; 0 where null says that.
  std::int64_t whole(const ConfigKey& key, std::int64_t fallback, std::int64_t low, std::int64_t high) const;
  double real(const ConfigKey& key, double fallback, double low, double high) const;
  bool flag(const ConfigKey& key, bool fallback) const;
  std::string text(const ConfigKey& key, const std::string& fallback) const;

  // Null counts as absent.
  std::optional<std::int64_t> optional_whole(const ConfigKey& key, std::int64_t low, std::int64_t high) const;

 private:
  // The spelling that is there and not null; two that disagree are refused rather than guessed between.
  const char* find(const ConfigKey& key) const;
  // Of a key that find() does not find.
  template <typename T>
  T missing(const ConfigKey& key, T fallback) const;

  const Json& object_;
  std::string file_;
  std::string prefix_;
};

}  // namespace spillway
