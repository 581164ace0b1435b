// What the choices of a flag are called: each enumeration of options.h beside the words of the command line.
// Not here: which flag has which (flag_table.cpp).
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "trainer/options/flag_value.h"
#include "trainer/options/options.h"

namespace spillway {

template <typename E>
struct FlagChoice {
  std::string_view name;
  E value;
};
template <typename E>
struct FlagChoices;
template <>
struct FlagChoices<DataOrder> {
  static constexpr FlagChoice<DataOrder> all[] = {{"shuffled", DataOrder::shuffled}, {"sequential", DataOrder::sequential}};
};
template <>
struct FlagChoices<DataFormat> {
  static constexpr FlagChoice<DataFormat> all[] = {{"auto", DataFormat::automatic}, {"u16", DataFormat::u16}};
};
template <>
struct FlagChoices<TrainOn> {
  static constexpr FlagChoice<TrainOn> all[] = {{"assistant", TrainOn::assistant}, {"all", TrainOn::all}};
};
template <>
struct FlagChoices<DecayStyle> {
  static constexpr FlagChoice<DecayStyle> all[] = {{"constant", DecayStyle::constant},
                                                   {"linear", DecayStyle::linear},
                                                   {"cosine", DecayStyle::cosine},
                                                   {"wsd", DecayStyle::wsd}};
};
template <>
struct FlagChoices<OptimizerChoice> {
  static constexpr FlagChoice<OptimizerChoice> all[] = {{"adamw", OptimizerChoice::adamw}};
};
template <>
struct FlagChoices<DType> {
  static constexpr FlagChoice<DType> all[] = {{"bf16", DType::bfloat16}, {"fp32", DType::float32}, {"fp16", DType::float16}};
};
template <>
struct FlagChoices<StateChoice> {
  static constexpr FlagChoice<StateChoice> all[] = {{"exact", StateChoice::exact}, {"compact", StateChoice::compact}};
};
template <>
struct FlagChoices<TierChoice> {
  static constexpr FlagChoice<TierChoice> all[] = {
      {"auto", TierChoice::automatic}, {"device", TierChoice::device}, {"host", TierChoice::host}, {"nvme", TierChoice::nvme}};
};
template <>
struct FlagChoices<ActivationChoice> {
  static constexpr FlagChoice<ActivationChoice> all[] = {{"auto", ActivationChoice::automatic},
                                                         {"device", ActivationChoice::device},
                                                         {"recompute", ActivationChoice::recompute},
                                                         {"host", ActivationChoice::host},
                                                         {"nvme", ActivationChoice::nvme}};
};
template <>
struct FlagChoices<UpdateOnChoice> {
  static constexpr FlagChoice<UpdateOnChoice> all[] = {
      {"auto", UpdateOnChoice::automatic}, {"host", UpdateOnChoice::host}, {"device", UpdateOnChoice::device}};
};
template <>
struct FlagChoices<OrderChoice> {
  static constexpr FlagChoice<OrderChoice> all[] = {
      {"auto", OrderChoice::automatic}, {"horizontal", OrderChoice::horizontal}, {"vertical", OrderChoice::vertical}};
};
template <>
struct FlagChoices<UpdateChoice> {
  static constexpr FlagChoice<UpdateChoice> all[] = {{"auto", UpdateChoice::automatic},
                                                     {"after", UpdateChoice::after},
                                                     {"in-backward", UpdateChoice::in_backward},
                                                     {"in-next-forward", UpdateChoice::in_next_forward}};
};
template <>
struct FlagChoices<DurabilityChoice> {  // automatic has no name: it is what happens where the flag is not given
  static constexpr FlagChoice<DurabilityChoice> all[] = {{"step", DurabilityChoice::step},
                                                         {"checkpoint", DurabilityChoice::checkpoint}};
};
template <>
struct FlagChoices<CollectivesChoice> {
  static constexpr FlagChoice<CollectivesChoice> all[] = {{"auto", CollectivesChoice::automatic},
                                                          {"threads", CollectivesChoice::threads},
                                                          {"mpi", CollectivesChoice::mpi},
                                                          {"nccl", CollectivesChoice::nccl}};
};
template <>
struct FlagChoices<OutputFormat> {
  static constexpr FlagChoice<OutputFormat> all[] = {
      {"table", OutputFormat::table}, {"json", OutputFormat::json}, {"html", OutputFormat::html}};
};

template <typename E>
std::string names_of(std::string_view separator) {
  std::string names;
  for (const auto& choice : FlagChoices<E>::all) names += fmt::format("{}{}", names.empty() ? "" : separator, choice.name);
  return names;
}

template <typename E>
void set_choice(E& target, const FlagValue& value) {
  for (const auto& choice : FlagChoices<E>::all) {
    if (choice.name == value.text()) {
      target = choice.value;
      return;
    }
  }
  value.refuse(value.text(), names_of<E>(", "));
}

template <typename E>
nlohmann::json choice_json(E value) {
  for (const auto& choice : FlagChoices<E>::all) {
    if (choice.value == value) return std::string(choice.name);
  }
  return nullptr;
}

}  // namespace spillway
