// What commands print, and whether it arrived: half a plan on a full disk is no plan.
// Not here: a run's progress, which training outlives (trainer/show/progress.h).
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace spillway {

// False where whoever read it has gone (`spillway plan | head`): for the command to end, or to go on unread. IoError where it
// cannot be written.
bool put(std::string_view text);

template <typename... Values>
void say(fmt::format_string<Values...> format, Values&&... values) {
  put(fmt::format(format, std::forward<Values>(values)...));
}

// So that no file that is opened later takes the place of a standard stream that was closed, and what is printed.
void open_standard_streams();

}  // namespace spillway
