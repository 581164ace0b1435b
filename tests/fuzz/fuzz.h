// Shared by the fuzz targets. Each feeds arbitrary bytes to one parser: whatever they are, it must return or throw Error, within
// its memory. Not here: which parser (the files beside this one), how they are run (tools/fuzz).
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "memory/base/error.h"
#include "nvme/directory_lock.h"

namespace spillway {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// The bytes as a file, for parsers that open one.
class FuzzFile {
 public:
  explicit FuzzFile(std::string_view content) : file_(memfd_create("fuzz", MFD_CLOEXEC)) {
    if (write(file_.get(), content.data(), content.size()) != static_cast<ssize_t>(content.size())) __builtin_trap();
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_.get()); }

 private:
  Descriptor file_;
};

// A refusal that says what is wrong is the right answer; any other exception is a finding.
template <typename Parse>
void refuse_or_accept(Parse&& parse) {
  try {
    parse();
  } catch (const Error& error) {
    if (error.exit_code() == 1 || std::string_view(error.what()).empty()) throw;
  }
}

}  // namespace spillway
