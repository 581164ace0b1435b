#include "models/config_section.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "files/strict_json.h"

namespace spillway {

std::optional<JsonPlace> ConfigSection::find(const ConfigKey& key) const {
  std::optional<JsonPlace> found;
  for (const char* name : {key.name, key.other}) {
    if (name == nullptr || !has(name)) continue;
    const JsonPlace place = object_.at(name);
    if (found && found->json() != place.json())
      found->refuse(
          fmt::format("is {}, but {} is {}; they mean the same thing", shown(found->json()), name, shown(place.json())));
    if (!found) found = place;
  }
  return found;
}

template <typename T>
T ConfigSection::missing(const ConfigKey& key, T fallback) const {
  for (const char* name : {key.name, key.other}) {
    if (name == nullptr || !object_.has(name)) continue;
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
  const auto found = find(key);
  return found ? std::optional(found->integer(low, high)) : std::nullopt;
}

double ConfigSection::real(const ConfigKey& key, double fallback, double low, double high) const {
  const auto found = find(key);
  return found ? found->number(low, high) : missing(key, fallback);
}

bool ConfigSection::flag(const ConfigKey& key, bool fallback) const {
  const auto found = find(key);
  return found ? found->boolean() : missing(key, fallback);
}

std::string ConfigSection::text(const ConfigKey& key, const std::string& fallback) const {
  const auto found = find(key);
  return found ? found->text() : missing(key, fallback);
}

}  // namespace spillway
