// Profiles of well-known machines, embedded when the program is built: trainer/machine/profiles/NAME.json, with the sources of
// their figures.
// Not here: profiles of measured machines (profile_file.h, probe.h).
#pragma once

#include <span>
#include <string_view>

namespace spillway {

struct KnownMachine {
  std::string_view name;  // as --profile takes it
  std::string_view profile_json;
};

std::span<const KnownMachine> known_machines();

}  // namespace spillway
