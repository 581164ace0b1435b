// Members of tokenizer.json by name and type, refused with where they stand. Not here: what they mean.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "memory/error.h"

namespace spillway::tokenizer_json {

inline const nlohmann::json& member(const nlohmann::json& object, const char* key, const std::string& where) {
  if (!object.is_object() || !object.contains(key)) throw InputError(fmt::format("{}: found no \"{}\"", where, key));
  return object.at(key);
}

inline std::string text(const nlohmann::json& object, const char* key, const std::string& where) {
  const nlohmann::json& value = member(object, key, where);
  if (!value.is_string()) throw InputError(fmt::format("{}: \"{}\" is not a string", where, key));
  return value.get<std::string>();
}

inline bool boolean(const nlohmann::json& object, const char* key, bool missing, const std::string& where) {
  if (!object.contains(key) || object.at(key).is_null()) return missing;
  if (!object.at(key).is_boolean()) throw InputError(fmt::format("{}: \"{}\" is neither true nor false", where, key));
  return object.at(key).get<bool>();
}

}  // namespace spillway::tokenizer_json
