// Names of an enumeration's values, as people and files use them: one table for each enumeration, beside it.
// Not here: which of them a flag allows (trainer/options/flag_choices.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

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
concept HasNames = requires { Names<E>::all; };

template <HasNames E>
constexpr std::string_view name_of(E value) {  // "": the value has no name
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

// The values that have a name, in the order of Names<E>::all.
template <HasNames E>
constexpr auto values_of() {
  std::array<E, std::size(Names<E>::all)> values{};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = Names<E>::all[i].value;
  return values;
}
template <HasNames E>
inline constexpr auto kAll = values_of<E>();

// True when an enumerator has the value. Compilers then spell it in the name of a function, "Tier::host", and else "(Tier)3".
template <auto value>
constexpr bool is_enumerator() {
  const std::string_view spelled = __PRETTY_FUNCTION__;
  return spelled[spelled.find_first_not_of(' ', spelled.rfind('=') + 1)] != '(';
}

// One T for each value of an enumeration all of whose values have a name: for example, for each tier or each lane.
template <HasNames E, typename T>
class By {
 public:
  static constexpr std::size_t kCount = kAll<E>.size();
  static_assert(std::ranges::is_sorted(kAll<E>) && static_cast<std::size_t>(kAll<E>.back()) + 1 == kCount &&
                    !is_enumerator<static_cast<E>(kCount)>(),
                "Names<E>::all must have every value of the enumeration, in its order");

  constexpr By() = default;
  constexpr By(std::initializer_list<std::pair<E, T>> given) {  // T{} for values that are not given
    for (const auto& [of, value] : given) (*this)[of] = value;
  }

  constexpr T& operator[](E of) { return values_[static_cast<std::size_t>(of)]; }
  constexpr const T& operator[](E of) const { return values_[static_cast<std::size_t>(of)]; }
  constexpr auto begin() { return values_.begin(); }
  constexpr auto begin() const { return values_.begin(); }
  constexpr auto end() { return values_.end(); }
  constexpr auto end() const { return values_.end(); }
  bool operator==(const By&) const = default;

  using value_type = T;
  using iterator = typename std::array<T, kCount>::iterator;  // the JSON library demands these of an array
  using const_iterator = typename std::array<T, kCount>::const_iterator;

 private:
  std::array<T, kCount> values_{};
};

}  // namespace spillway
