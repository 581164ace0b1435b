// A value within a JSON file that knows where it is, so that each complaint names the file and the entry.
// Not here: what is allowed in which file; parsing (strict_json.h).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "memory/base/names.h"

namespace spillway {

// Text without quotes; other values as JSON.
std::string plain_text(const nlohmann::json& value);

// The owner of a file: a fault in a file that the user gave is an InputError, in one of the program's own an IoError.
enum class FileOf : std::uint8_t { user, program };

class JsonPlace {
 public:
  // The whole of a file; `help` goes with every complaint. `value` and `help` must outlive the place.
  JsonPlace(const nlohmann::json& value, std::string file, std::string_view help = {}, FileOf whose = FileOf::user);

  // A member of an object, which may be missing, and an entry of an array, which must exist.
  JsonPlace at(std::string_view key) const;
  JsonPlace at(std::size_t index) const;
  bool has(std::string_view key) const;
  bool is_there() const { return value_ != nullptr; }
  bool is_null() const;  // it exists and is null
  bool is_set() const { return is_there() && !is_null(); }
  std::vector<std::string> keys() const;
  std::size_t size() const;  // of an array

  // The value. Each of these refuses a value that is missing or is not what the call takes it for.
  double number(double least, double most) const;
  std::int64_t integer(std::int64_t least, std::int64_t most) const;
  bool boolean() const;
  bool boolean_or(bool unset) const;
  const std::string& text() const;
  std::uint64_t hash() const;  // written as 16 hexadecimal digits
  template <HasNames E>
  E named() const;  // by one of its names
  const nlohmann::json& json() const;

  // Throws "FILE: ops[3].lane WHY". `help`, if given, takes the place of the file's.
  [[noreturn]] void refuse(std::string_view why, std::string_view help = {}) const;

 private:
  JsonPlace(const nlohmann::json* value, const JsonPlace& parent, std::string path);
  [[noreturn]] void refuse_as(std::string_view allowed) const;
  [[noreturn]] void refuse_as_one_of(std::span<const std::string_view> names) const;

  const nlohmann::json* value_;  // null: it is missing
  std::string file_, path_;
  std::string_view help_;
  FileOf whose_;
};

template <HasNames E>
E JsonPlace::named() const {
  if (const auto value = value_of<E>(text())) return *value;
  std::vector<std::string_view> names;
  for (const auto& named : Names<E>::all) names.push_back(named.name);
  refuse_as_one_of(names);
}

}  // namespace spillway
