#include "trainer/data/hidden_file.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include "memory/base/error.h"

namespace spillway {

HiddenFile::HiddenFile(std::string_view purpose) {
  std::error_code error;
  const std::filesystem::path directory = std::filesystem::temp_directory_path(error);
  std::string name = ((error ? std::filesystem::path("/tmp") : directory) / "spillway_hidden_XXXXXX").string();
  fd_ = ::mkstemp(name.data());
  if (fd_ < 0) {
    throw IoError(fmt::format("{}: cannot be created: {}", name, std::strerror(errno)),
                  fmt::format("{}; TMPDIR names its directory", purpose));
  }
  // The file keeps no name: however the process ends, the space is free again.
  try {
    written_ = PosixFile::create(name);
  } catch (...) {
    std::filesystem::remove(name, error);
    ::close(fd_);
    throw;
  }
  std::filesystem::remove(name, error);
}

HiddenFile::~HiddenFile() { ::close(fd_); }

void HiddenFile::write(std::span<const std::byte> bytes) {
  written_.write(size_, bytes);
  size_ += static_cast<Bytes>(bytes.size());
}

PosixFile HiddenFile::open() const { return PosixFile::open_to_read(fmt::format("/proc/self/fd/{}", fd_)); }

}  // namespace spillway
