#include "trainer/options/unknown_flag.h"

#include <fmt/core.h>

#include <algorithm>

#include "trainer/options/foreign_flags.h"
#include "trainer/options/later_flags.h"
#include "trainer/words/nearest_name.h"

namespace spillway {
namespace {

// Returns true if one of our equivalent flags could have stood there, or if there is no equivalent and the answer says why.
bool is_of_use(const ForeignFlags& foreign, std::span<const std::string> known) {
  return foreign.ours.empty() ||
         std::ranges::any_of(known, [&](const std::string& name) { return has_word(foreign.ours, "--" + name); });
}

// "--a", "--a and --b", "--a, --b and --c"
std::string listed(std::string_view names) {
  std::string text;
  while (!names.empty()) {
    const std::size_t end = std::min(names.find(' '), names.size());
    const std::string_view name = names.substr(0, end);
    names.remove_prefix(std::min(end + 1, names.size()));
    text += fmt::format("{}{}", text.empty() ? "" : names.empty() ? " and " : ", ", name);
  }
  return text;
}

// A flag of one letter has no near names.
std::string nearest_to(const UnknownFlag& unknown) {
  return unknown.name.starts_with('-') ? "" : nearest_name(unknown.name, unknown.known);
}

}  // namespace

InputError refusal_of(const UnknownFlag& unknown, std::string_view where) {
  const std::string dashed = with_dashes(unknown.name);
  if (const LaterFlags* later = find_later_flag(dashed))
    return InputError(fmt::format("{}--{}: {}", where, dashed, later->lacks), std::string(later->instead));
  const std::string message = fmt::format("{}found {}", where, unknown.said);
  if (dashed != unknown.name && std::ranges::find(unknown.known, dashed) != unknown.known.end())
    return InputError(fmt::format("{}; here it is written --{}", message, dashed));
  const ForeignFlags* foreign = find_foreign_flag(dashed);
  if (foreign != nullptr && is_of_use(*foreign, unknown.known)) {
    return InputError(foreign->ours.empty() ? message : fmt::format("{}; here it is {}", message, listed(foreign->ours)),
                      std::string(foreign->how));
  }
  const std::string nearest = nearest_to(unknown);
  return InputError(message, nearest.empty() ? unknown.help : fmt::format("did you mean --{}?", nearest));
}

std::string short_answer_to(const UnknownFlag& unknown) {
  const std::string dashed = with_dashes(unknown.name);
  if (find_later_flag(dashed) != nullptr) return "in a later version";
  if (dashed != unknown.name && std::ranges::find(unknown.known, dashed) != unknown.known.end()) return "written " + dashed;
  const ForeignFlags* foreign = find_foreign_flag(dashed);
  if (foreign != nullptr && is_of_use(*foreign, unknown.known))
    return foreign->ours.empty() ? "leave it out" : listed(foreign->ours);
  const std::string nearest = nearest_to(unknown);
  return nearest.empty() ? "unknown" : nearest + "?";
}

}  // namespace spillway
