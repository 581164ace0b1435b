#include "trainer/host/append_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "files/posix_file.h"
#include "memory/base/error.h"

namespace spillway {

AppendFile::AppendFile(std::string path, Bytes keep) : path_(std::move(path)) {
  const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
  if (fd < 0) {
    const int refused = errno;
    throw IoError(fmt::format("{}: cannot be written: {}", path_, std::strerror(refused)), help_for(refused));
  }
  struct stat status = {};
  const bool is_regular = ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
  const bool is_cut = is_regular && ::ftruncate(fd, keep) == 0;
  const int error = errno;
  if (!is_cut) ::close(fd);
  if (!is_regular) throw IoError(fmt::format("{}: is not a regular file", path_));
  if (!is_cut)
    throw IoError(fmt::format("{}: cutting it to {} bytes failed: {}", path_, keep, std::strerror(error)), help_for(error));
  fd_ = fd;
}

AppendFile::~AppendFile() {
  if (fd_ >= 0) ::close(fd_);
}

AppendFile::AppendFile(AppendFile&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

void AppendFile::append(std::string_view record) {
  std::size_t done = 0;
  while (done < record.size()) {
    const ssize_t count = ::write(fd_, record.data() + done, record.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int error = errno;
      throw IoError(fmt::format("{}: writing {} bytes failed: {}", path_, record.size(), std::strerror(error)), help_for(error));
    }
    done += static_cast<std::size_t>(count);
  }
}

}  // namespace spillway
