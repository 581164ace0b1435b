#include "models/config_section.h"

#include <utility>

#include "memory/error.h"
#include "models/strict_json.h"

namespace spillway {

void ConfigSection::refuse(const std::string& key, const std::string& problem, std::string help) const {
  throw InputError(fmt::format("{}: {}{} {}", file_, prefix_, key, problem), std::move(help));
}

const char* ConfigSection::find(const ConfigKey& key) const {
  const char* found = nullptr;
  for (const char* name : {key.name, key.other}) {
    if (name == nullptr || !has(name)) continue;
    if (found != nullptr && object_[found] != object_[name]) {
      refuse(found,
             fmt::format("is {}, but {} is {}; they mean the same thing", shown(object_[found]), name, shown(object_[name])));
    }
    if (found == nullptr) found = name;
  }
  return found;
}

template <typename T>
T ConfigSection::missing(const ConfigKey& key, T fallback) const {
  for (const char* name : {key.name, key.other}) {
    if (name == nullptr || !object_.contains(name)) continue;
    if (key.null == NullIs::refused) refuse(name, "is null; a value is needed");
    if (key.null == NullIs::zero) return T{};
  }
  return fallback;
}

std::int64_t ConfigSection::whole(const ConfigKey& key, std::int64_t fallback, std::int64_t low, std::int64_t high) const {
  const auto found = optional_whole(key, low, high);
  return found ? *found : missing(key, fallback);
}

std::optional<std::int64_t> ConfigSection::optional_whole(const ConfigKey& key, std::int64_t low, std::int64_t high) const {
  const char* name = find(key);
  if (name == nullptr) return std::nullopt;
  const Json& value = object_[name];
  const bool fits = value.is_number_integer() && !(value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX) &&
                    value.get<std::int64_t>() >= low && value.get<std::int64_t>() <= high;
  if (!fits) refuse(name, fmt::format("is {}; a whole number from {} to {} is allowed", shown(value), low, high));
  return value.get<std::int64_t>();
}

double ConfigSection::real(const ConfigKey& key, double fallback, double low, double high) const {
  const char* name = find(key);
  if (name == nullptr) return missing(key, fallback);
  const Json& value = object_[name];
  if (!value.is_number() || !(value.get<double>() >= low && value.get<double>() <= high)) {
    refuse(name, fmt::format("is {}; a number from {} to {} is allowed", shown(value), low, high));
  }
  return value.get<double>();
}

bool ConfigSection::flag(const ConfigKey& key, bool fallback) const {
  const char* name = find(key);
  if (name == nullptr) return missing(key, fallback);
  if (!object_[name].is_boolean()) refuse(name, fmt::format("is {}; true or false is allowed", shown(object_[name])));
  return object_[name].get<bool>();
}

std::string ConfigSection::text(const ConfigKey& key, const std::string& fallback) const {
  const char* name = find(key);
  if (name == nullptr) return missing(key, fallback);
  if (!object_[name].is_string()) refuse(name, fmt::format("is {}; a string is allowed", shown(object_[name])));
  return object_[name].get<std::string>();
}

}  // namespace spillway
