#include "trainer/options/deepspeed/deepspeed_walk.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "files/strict_json.h"
#include "trainer/options/deepspeed/deepspeed_keys.h"
#include "trainer/words/nearest_name.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr std::string_view kAuto = "auto";
constexpr double kMostWhole = 9007199254740992;  // 2^53: from there on not every whole number is a double

std::string joined(std::string_view block, std::string_view name) {
  return block.empty() ? std::string(name) : fmt::format("{}.{}", block, name);
}

std::string_view allowed_of(DeepSpeedKind kind) {
  switch (kind) {
    case DeepSpeedKind::boolean: return "true or false";
    case DeepSpeedKind::integer: return "a whole number from 0 on, or \"auto\"";
    case DeepSpeedKind::real: return "a number, or \"auto\"";
    case DeepSpeedKind::text: return "a string";
    case DeepSpeedKind::reals: return "a list of two numbers, or \"auto\"";
    case DeepSpeedKind::block:
    case DeepSpeedKind::feature: return "an object";
  }
  return "";
}

std::optional<json> whole(const json& value) {
  if (value.is_number_unsigned()) return value;
  if (value.is_number_integer()) return value.get<std::int64_t>() >= 0 ? std::optional(value) : std::nullopt;
  if (!value.is_number_float()) return std::nullopt;
  const auto real = value.get<double>();
  if (real < 0 || real > kMostWhole || real != std::floor(real)) return std::nullopt;
  return json(static_cast<std::int64_t>(real));
}

// The value as its kind has it: 5e8 is a whole number, "true" is true. Nothing if it is of another kind.
std::optional<json> typed(const json& value, DeepSpeedKind kind) {
  switch (kind) {
    case DeepSpeedKind::boolean:
      if (value.is_boolean()) return value;
      if (value == "true" || value == "True") return json(true);
      if (value == "false" || value == "False") return json(false);
      return std::nullopt;
    case DeepSpeedKind::integer: return whole(value);
    case DeepSpeedKind::real: return value.is_number() ? std::optional(value) : std::nullopt;
    case DeepSpeedKind::text: return value.is_string() ? std::optional(value) : std::nullopt;
    case DeepSpeedKind::reals:
      if (value.is_array() && value.size() == 2 && value[0].is_number() && value[1].is_number()) return value;
      return std::nullopt;
    case DeepSpeedKind::block:
    case DeepSpeedKind::feature: return value.is_object() ? std::optional(value) : std::nullopt;
  }
  return std::nullopt;
}

bool is_on(const json& feature) {
  const auto enabled = feature.find("enabled");
  return enabled != feature.end() && (*enabled == true || *enabled == "true" || *enabled == "True");
}

class Walker {
 public:
  explicit Walker(DeepSpeedWalk& walk) : walk_(walk) {}

  void read(const std::string& block, const json& object) {
    for (const auto& [name, value] : object.items()) {
      if (const DeepSpeedKey* key = find_deepspeed_key(block, name)) {
        refuse_twice(block, *key, name, object);
        read_key(*key, joined(block, key->names.substr(0, key->names.find(' '))), joined(block, name), value);
      } else {
        read_unknown(block, name);
      }
    }
  }

 private:
  void read_unknown(const std::string& block, const std::string& name) {
    const std::string path = shown_name(joined(block, name));
    const std::string nearest = nearest_name(name, deepspeed_names(block));
    const std::string hint = nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest);
    if (refuses_unknown_keys(block)) {
      walk_.problems.push_back(fmt::format("{}: found a key that DeepSpeed does not know there{}", path, hint));
    } else {
      walk_.note("DeepSpeed knows no such key there and passes over it, and so does this", path + hint);
    }
  }

  // A key may be there by two of its names.
  void refuse_twice(const std::string& block, const DeepSpeedKey& key, const std::string& name, const json& object) {
    for (const auto& [other, ignored] : object.items()) {
      if (other == name) return;  // the first of them says it
      if (has_word(key.names, other))
        return walk_.problems.push_back(fmt::format("{}: found together with {}, which is the same key, allowed: one of them",
                                                    joined(block, name), joined(block, other)));
    }
  }

  // `path` has the key's own name, `said` the one that the file has.
  void read_key(const DeepSpeedKey& key, const std::string& path, const std::string& said, const json& value) {
    if (value.is_null()) return;
    if (value == kAuto) return walk_.automatic.push_back(path);
    if (path == "zero_optimization" && value.is_boolean()) {  // an old way to say stages 1 and 0
      walk_.values[path + ".stage"] = value.get<bool>() ? 1 : 0;
      return;
    }
    const std::optional<json> found = typed(value, key.kind);
    if (!found) return walk_.refuse(said, shown(value), allowed_of(key.kind));
    if (key.fate == DeepSpeedFate::used) {
      walk_.values[path] = key.kind == DeepSpeedKind::block ? json() : *found;
      if (key.kind == DeepSpeedKind::block) read(path, *found);
      return;
    }
    if (key.fate == DeepSpeedFate::silent || is_harmless(key, *found)) return;
    if (key.fate == DeepSpeedFate::noted) return walk_.note(key.why, said);
    walk_.problems.push_back(fmt::format("{}: found {}, which this version does not do: {}", said, shown(value), key.why));
  }

  static bool is_harmless(const DeepSpeedKey& key, const json& value) {
    if (key.kind == DeepSpeedKind::feature) return !is_on(value);
    return !key.harmless.empty() && json::parse(key.harmless) == value;
  }

  DeepSpeedWalk& walk_;
};

}  // namespace

const json* DeepSpeedWalk::find(std::string_view path) const {
  const auto found = values.find(path);
  return found == values.end() ? nullptr : &found->second;
}

bool DeepSpeedWalk::is_automatic(std::string_view path) const { return std::ranges::find(automatic, path) != automatic.end(); }

void DeepSpeedWalk::refuse(std::string_view key, std::string_view found, std::string_view allowed) {
  problems.push_back(fmt::format("{}: found {}, allowed: {}", key, found, allowed));
}

void DeepSpeedWalk::note(std::string_view reason, std::string key) {
  const auto place = std::ranges::find_if(notes, [&](const auto& one) { return one.first == reason; });
  if (place == notes.end()) {
    notes.push_back({std::string(reason), {std::move(key)}});
  } else {
    place->second.push_back(std::move(key));
  }
}

DeepSpeedWalk walk_deepspeed(const json& root) {
  DeepSpeedWalk walk;
  Walker(walk).read("", root);
  return walk;
}

}  // namespace spillway
