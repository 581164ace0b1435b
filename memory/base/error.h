// How a run ends: the exception types that tools/ maps to exit codes, and CHECK for our own bugs.
// Not here: expected failures (short I/O, EAGAIN), which are results that the caller handles.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace spillway {

// Exit codes of the command: scripts rely on them.
inline constexpr int kExitBug = 1;        // our bug
inline constexpr int kExitInput = 2;      // bad usage or bad input
inline constexpr int kExitBudget = 3;     // does not fit the budgets
inline constexpr int kExitIo = 4;         // input/output failed, or stored data is damaged
inline constexpr int kExitDifferent = 5;  // verify found a difference
inline constexpr int kExitNotFinite = 6;  // the loss or a gradient stopped being finite
inline constexpr int kExitInterrupted = 130;

// `what()` is one line: what failed, with numbers. `help()` says what to do, in at most a few lines; it may be empty.
class Error : public std::runtime_error {
 public:
  Error(int exit_code, const std::string& message, std::string help)
      : std::runtime_error(message), exit_code_(exit_code), help_(std::move(help)) {}
  int exit_code() const noexcept { return exit_code_; }
  const std::string& help() const noexcept { return help_; }

 private:
  int exit_code_;
  std::string help_;
};

// Exit 2: bad usage or bad input. Names the file or flag, what was found, what is allowed.
struct InputError : Error {
  explicit InputError(const std::string& message, std::string help = {}) : Error(kExitInput, message, std::move(help)) {}
};
// Exit 3: does not fit the budgets.
struct BudgetError : Error {
  explicit BudgetError(const std::string& message, std::string help = {}) : Error(kExitBudget, message, std::move(help)) {}
};
// Exit 4: input/output failed, or stored data is damaged. Names the file and the bytes.
struct IoError : Error {
  explicit IoError(const std::string& message, std::string help = {}) : Error(kExitIo, message, std::move(help)) {}
};
// Exit 6: the loss or a gradient is no longer finite. Names the step; the help says which state is kept.
struct NotFiniteError : Error {
  explicit NotFiniteError(const std::string& message, std::string help = {}) : Error(kExitNotFinite, message, std::move(help)) {}
};

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);

}  // namespace spillway

// A violated CHECK is our bug: exit 1 with the place and the reason. The message is fmt-formatted.
#define SPILLWAY_CHECK(condition, ...)                                                                    \
  do {                                                                                                    \
    if (!(condition)) ::spillway::check_failed(__FILE__, __LINE__, #condition, fmt::format(__VA_ARGS__)); \
  } while (false)
