// The style and the script of the pages, embedded when the program is built: a page is one file and needs no network.
// Not here: the data that they show (trainer/show/page.h).
#pragma once

#include "files/embedded_file.h"

namespace spillway {

// One file each.
std::span<const EmbeddedFile> page_style();
std::span<const EmbeddedFile> page_script();

}  // namespace spillway
