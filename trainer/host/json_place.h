// A value within a JSON file that knows where it is, so that each complaint names the file and the entry.
// Not here: what is allowed in which file; parsing (models/strict_json.h).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace spillway {

// Text as it is, without quotes; other values as JSON.
std::string plain_text(const nlohmann::json& value);

class JsonPlace {
 public:
  // The whole of a file; `help` goes with every complaint. Value and help must outlive the place.
  JsonPlace(const nlohmann::json& value, std::string file, std::string_view help);

  // Each is an InputError where this is not what the call takes it for.
  JsonPlace at(std::string_view key) const;
  JsonPlace at(std::size_t index) const;
  bool has(std::string_view key) const;
  std::size_t size() const;  // of an array
  double number(double least, double most) const;
  std::int64_t integer(std::int64_t least, std::int64_t most) const;
  bool boolean() const;
  const std::string& text() const;

  bool is_text(std::string_view text) const;
  std::string as_said() const;  // the value as JSON, on one line

  // InputError "FILE: ops[3].lane WHY".
  [[noreturn]] void refuse(std::string_view why) const;

 private:
  JsonPlace(const nlohmann::json& value, const JsonPlace& parent, std::string path);

  const nlohmann::json* value_;
  std::string file_, path_;
  std::string_view help_;
};

}  // namespace spillway
