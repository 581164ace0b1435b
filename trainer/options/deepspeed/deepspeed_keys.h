// The keys of DeepSpeed's JSON as data: where each one stands, its type, and what becomes of it here.
// Not here: what the values that are used mean (deepspeed_meaning.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

enum class DeepSpeedKind : std::uint8_t { boolean, integer, real, text, reals, block, feature };

enum class DeepSpeedFate : std::uint8_t {
  used,     // has a meaning here
  noted,    // has none, and the result is the same: a note says why
  refused,  // has none, and the result would be another
  silent,   // nothing to say
};

struct DeepSpeedKey {
  std::string_view block;  // "zero_optimization.offload_param"; empty: the top level
  std::string_view names;  // of one meaning, separated by blanks; the first is the one that messages have
  DeepSpeedKind kind;      // feature: an object that does something if its key "enabled" is true; its other keys are not read
  DeepSpeedFate fate = DeepSpeedFate::used;
  std::string_view why = {};       // of a note or a refusal: what is done instead
  std::string_view harmless = {};  // a value, as JSON, about which there is nothing to say
};

// A block whose unknown keys DeepSpeed refuses. It reads the others key by key, and passes over what it does not know.
bool refuses_unknown_keys(std::string_view block);

// Null if DeepSpeed has no such key there.
const DeepSpeedKey* find_deepspeed_key(std::string_view block, std::string_view name);
// The names of a block's keys, for messages.
std::vector<std::string> deepspeed_names(std::string_view block);

}  // namespace spillway
