// Prints for commands and checks that the output arrives: half a plan on a full disk is no plan.
// Not here: a run's progress, which may be lost without ending the training (trainer/show/progress.h).
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace spillway {

// Returns false if the reader has gone (`spillway plan | head`), so that the command may end or go on unread. Throws IoError if
// the text cannot be written.
bool put(std::string_view text);

template <typename... Values>
void say(fmt::format_string<Values...> format, Values&&... values) {
  put(fmt::format(format, std::forward<Values>(values)...));
}

// Opens closed standard streams, so that no file opened later takes their number and with it the printed text.
void open_standard_streams();

}  // namespace spillway
