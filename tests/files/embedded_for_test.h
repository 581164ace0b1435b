// Files that the test's program has within it (tests/CMakeLists.txt). Not here: those that the command has.
#pragma once

#include "files/embedded_file.h"

namespace spillway {

std::span<const EmbeddedFile> embedded_for_test();  // every_byte.bin and machine.json, of tests/data

}  // namespace spillway
