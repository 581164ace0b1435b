// The words that flags with a fixed choice offer and accept, and the names of the enumerations that only options.h has.
// Not here: which flag has which enumeration (flag_table.cpp), names that plans share (memory/plan/choice_names.h).
#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memory/base/names.h"
#include "trainer/options/flag_value.h"
#include "trainer/options/options.h"

namespace spillway {

template <>
struct Names<WeightInit> {
  static constexpr Named<WeightInit> all[] = {{"checkpoint", WeightInit::checkpoint}, {"random", WeightInit::random}};
};
template <>
struct Names<DataOrder> {
  static constexpr Named<DataOrder> all[] = {{"shuffled", DataOrder::shuffled}, {"sequential", DataOrder::sequential}};
};
template <>
struct Names<DataFormat> {
  static constexpr Named<DataFormat> all[] = {{"auto", DataFormat::automatic}, {"u16", DataFormat::u16}};
};
template <>
struct Names<TrainOn> {
  static constexpr Named<TrainOn> all[] = {{"assistant", TrainOn::assistant}, {"last", TrainOn::last}, {"all", TrainOn::all}};
};
template <>
struct Names<TextEnds> {
  static constexpr Named<TextEnds> all[] = {{"auto", TextEnds::both}, {"both", TextEnds::both}, {"none", TextEnds::none}};
};
template <>
struct Names<DecayStyle> {
  static constexpr Named<DecayStyle> all[] = {{"constant", DecayStyle::constant},
                                              {"linear", DecayStyle::linear},
                                              {"cosine", DecayStyle::cosine},
                                              {"wsd", DecayStyle::wsd}};
};
template <>
struct Names<LrRule> {
  static constexpr Named<LrRule> all[] = {{"spillway", LrRule::spillway}, {"deepspeed", LrRule::deepspeed}};
};
template <>
struct Names<WarmupStyle> {
  static constexpr Named<WarmupStyle> all[] = {{"linear", WarmupStyle::linear}, {"log", WarmupStyle::log}};
};
template <>
struct Names<LossScalePolicy> {
  static constexpr Named<LossScalePolicy> all[] = {{"deepspeed", LossScalePolicy::deepspeed},
                                                   {"pytorch", LossScalePolicy::pytorch}};
};
template <>
struct Names<OptimizerChoice> {
  static constexpr Named<OptimizerChoice> all[] = {{"adamw", OptimizerChoice::adamw}};
};
template <>
struct Names<OrderChoice> {
  static constexpr Named<OrderChoice> all[] = {
      {"auto", OrderChoice::automatic}, {"horizontal", OrderChoice::horizontal}, {"vertical", OrderChoice::vertical}};
};
template <>
struct Names<ReduceAlgorithm> {
  static constexpr Named<ReduceAlgorithm> all[] = {{"direct", ReduceAlgorithm::direct}, {"ring", ReduceAlgorithm::ring}};
};
template <>
struct Names<CollectivesChoice> {
  static constexpr Named<CollectivesChoice> all[] = {
      {"auto", CollectivesChoice::automatic}, {"threads", CollectivesChoice::threads},
      {"tcp", CollectivesChoice::tcp},        {"nccl", CollectivesChoice::nccl},
      {"mpi", CollectivesChoice::mpi},        {"parameter-server", CollectivesChoice::parameter_server}};
};
template <>
struct Names<OutputFormat> {
  static constexpr Named<OutputFormat> all[] = {
      {"table", OutputFormat::table}, {"json", OutputFormat::json}, {"html", OutputFormat::html}};
};

// The type of value that a flag sets: a value of E, or an optional, whose empty state is called auto.
template <typename T>
struct Chosen {
  using Value = T;
  static constexpr bool kMayBeNone = false;
};
template <typename E>
struct Chosen<std::optional<E>> {
  using Value = E;
  static constexpr bool kMayBeNone = true;
};
inline constexpr std::string_view kNone = "auto";

// The values that a flag allows, in the order in which it offers them; empty: all that have a name.
template <typename T>
using Allowed = std::initializer_list<typename Chosen<T>::Value>;

template <typename T>
std::string names_of(std::string_view separator, Allowed<T> allowed = {}) {
  std::vector<std::string_view> names;
  if (Chosen<T>::kMayBeNone) names.push_back(kNone);
  for (const auto value : allowed) names.push_back(name_of(value));
  if (allowed.size() == 0)
    for (const auto& named : Names<typename Chosen<T>::Value>::all) names.push_back(named.name);
  return fmt::format("{}", fmt::join(names, separator));
}

template <typename T>
void set_choice(T& target, const FlagValue& value, Allowed<T> allowed = {}) {
  const auto found = value_of<typename Chosen<T>::Value>(value.text());
  if (found && (allowed.size() == 0 || std::ranges::find(allowed, *found) != allowed.end())) {
    target = *found;
  } else if (Chosen<T>::kMayBeNone && value.text() == kNone) {
    target = {};
  } else {
    value.refuse(value.text(), names_of<T>(", ", allowed));
  }
}

}  // namespace spillway
