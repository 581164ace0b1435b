// The style and the script of the pages, embedded when the program is built: a page is one file and needs no network.
// Not here: the data that they show (trainer/show/page.h).
#pragma once

#include <string_view>

namespace spillway {

std::string_view page_style();
std::string_view page_script();

}  // namespace spillway
