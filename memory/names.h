// What the values of an enumeration are called where people and files say them: one table for each, beside the enumeration.
// Not here: which of them a flag allows (trainer/options/flag_choices.h).
#pragma once

#include <optional>
#include <string_view>

namespace spillway {

template <typename E>
struct Named {
  std::string_view name;
  E value;
};

// Names<E>::all: the values that have a name, in the order in which they are offered.
template <typename E>
struct Names;

template <typename E>
concept HasNames = requires {
  Names<E>::all;
};

template <HasNames E>
constexpr std::string_view name_of(E value) {  // "": it has none
  for (const auto& named : Names<E>::all)
    if (named.value == value) return named.name;
  return {};
}

template <HasNames E>
constexpr std::optional<E> value_of(std::string_view name) {
  for (const auto& named : Names<E>::all)
    if (named.name == name) return named.value;
  return std::nullopt;
}

}  // namespace spillway
