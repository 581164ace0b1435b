// YAML read with care: one document of bounded size, depth and number of values, no key twice in a block, no tags, and errors in
// our own words, with the line. Not here: what the keys mean, and which type a word without quotes has (whoever asked for the
// value knows).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

enum class YamlKind : std::uint8_t { null, plain, quoted, list, block };

struct YamlKey {
  std::string name;
  std::int64_t line = 1;
};

// A value, with all that is below it. Lines are counted from 1.
struct YamlValue {
  YamlKind kind = YamlKind::null;
  std::int64_t line = 1;
  std::string text;               // of a plain or quoted word
  std::vector<YamlValue> values;  // of a list or a block
  std::vector<YamlKey> keys;      // of a block, beside its values
};

// `file` names the text in errors (InputError). An alias becomes a copy of its anchor's value, and counts as often as it is
// there. Refused besides what is no YAML: a second document, keys that are no words, tags, merge keys (<<), an alias within its
// own anchor, bytes that are no UTF-8 text.
YamlValue parse_strict_yaml(std::string_view text, const std::string& file);

// A value in a form for error messages, as shown() of strict_json.h has it.
std::string shown(const YamlValue& value);

}  // namespace spillway
