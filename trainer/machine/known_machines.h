// Profiles of well-known machines, embedded when the program is built: trainer/machine/profiles/NAME.json, with the sources of
// their figures.
// Not here: profiles of measured machines (profile_file.h, probe.h).
#pragma once

#include "files/embedded_file.h"

namespace spillway {

std::span<const EmbeddedFile> known_machines();  // each called as --profile takes it

}  // namespace spillway
