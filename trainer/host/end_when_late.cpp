#include "trainer/host/end_when_late.h"

#include <fmt/core.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>

namespace spillway {
namespace {

[[noreturn]] void end_with(const Error& error) {
  const std::string words = fmt::format("error: {}\n{}{}", error.what(), error.help(), error.help().empty() ? "" : "\n");
  // If even this cannot be written, the exit code must suffice.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, words.data(), words.size());
  ::_exit(error.exit_code());
}

}  // namespace

EndWhenLate::EndWhenLate(std::chrono::milliseconds limit, Error error)
    : thread_([limit, error = std::move(error)](const std::stop_token& returned) {
        std::mutex mutex;
        std::condition_variable_any woken;
        std::unique_lock lock(mutex);
        woken.wait_for(lock, returned, limit, [] { return false; });
        if (!returned.stop_requested()) end_with(error);
      }) {}

}  // namespace spillway
