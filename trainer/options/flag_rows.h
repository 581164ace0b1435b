// The rows of the flag table, as the files that have them write them. Not here: what a flag is (flag.h).
#pragma once

#include <fmt/core.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/options/flag.h"
#include "trainer/options/flag_choices.h"

namespace spillway {

// Each adds the rows of one group, in the order of the help.
void add_training_flags(std::vector<Flag>& table);
void add_memory_flags(std::vector<Flag>& table);
void add_ranks_flags(std::vector<Flag>& table);

// --- values as JSON ---

using nlohmann::json;
using Bound = FlagValue::Bound;

inline constexpr std::int64_t kMostSteps = std::int64_t{1} << 40;
inline constexpr std::int64_t kMostSequences = std::int64_t{1} << 30;  // a product of two stays below 2^63
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <HasNames E>
json choice_json(E value) {
  return name_of(value).empty() ? json() : json(name_of(value));
}
template <HasNames E>
json choice_json(const std::optional<E>& value) {
  return value ? choice_json(*value) : json(kNone);
}

template <typename T>
json optional_json(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}
inline json text_json(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }
inline json list_json(const std::vector<std::string>& texts) { return texts.empty() ? json(nullptr) : json(texts); }
inline json size_json(const std::optional<Bytes>& bytes) { return bytes ? json(exact_size(*bytes)) : json(nullptr); }
inline json positive_json(std::int64_t value) { return value == 0 ? json(nullptr) : json(value); }  // 0 stands for "not given"

// --- rows ---

inline double at_least_zero(const FlagValue& value) { return value.real(0, Bound::included, kInfinity, Bound::excluded); }
inline double below_one(const FlagValue& value) { return value.real(0, Bound::included, 1, Bound::excluded); }
inline std::int64_t steps(const FlagValue& value, std::int64_t least) { return value.integer(least, kMostSteps); }

using F = FlagKind;

// Adds the rows of one group; the help lists them under one heading.
class FlagRows {
 public:
  FlagRows(std::vector<Flag>& table, const char* group) : table_(table), group_(group) {}
  // The lambdas capture nothing, so they are plain functions: a row is data.
  void operator()(const char* name, std::string value, F kind, const char* help, void (*set)(RunOptions&, const FlagValue&),
                  json (*get)(const RunOptions&)) const {
    table_.push_back({name, group_, std::move(value), kind, help, set, get});
  }

 private:
  std::vector<Flag>& table_;
  const char* group_;
};

// NOLINTBEGIN: rows are data, and these two keep each to a few lines.
#define SET [](RunOptions & o, const FlagValue& v)
#define GET [](const RunOptions& o) -> json
// NOLINTEND

}  // namespace spillway
