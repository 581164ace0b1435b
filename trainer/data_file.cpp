#include "trainer/data_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "memory/error.h"

namespace spillway {

DataFile::DataFile(std::string path, const std::string& flag) : path_(std::move(path)) {
  // Non-blocking, so that a pipe given by mistake is refused rather than waited on.
  fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) throw InputError(fmt::format("{}: found {}, which cannot be opened: {}", flag, path_, std::strerror(errno)));
  struct stat status = {};
  const bool known = ::fstat(fd_, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(std::exchange(fd_, -1));
    throw InputError(fmt::format("{}: found {}, allowed: a regular file or a directory", flag, path_));
  }
  size_ = status.st_size;
}

DataFile::~DataFile() {
  if (fd_ >= 0) ::close(fd_);
}

DataFile::DataFile(DataFile&& other) noexcept
    : path_(std::move(other.path_)), size_(other.size_), fd_(std::exchange(other.fd_, -1)) {}

void DataFile::read(std::int64_t offset, std::span<std::byte> bytes) const {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::pread(fd_, bytes.data() + done, bytes.size() - done, offset + static_cast<std::int64_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw IoError(fmt::format("{}: reading {} bytes at {} failed: {}", path_, bytes.size(), offset, std::strerror(errno)));
    }
    if (count == 0) {
      throw IoError(fmt::format("{}: wanted {} bytes at {}, found {}: the file had {} bytes when the run began and is shorter now", path_,
                                bytes.size(), offset, done, size_));
    }
    done += static_cast<std::size_t>(count);
  }
}

void DataFile::for_each_block(std::int64_t offset,
                              FunctionRef<void(std::int64_t offset, std::span<const std::byte> block)> visit) const {
  constexpr std::int64_t kBlock = 1 << 20;
  (void)::posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL);
  std::vector<std::byte> block(static_cast<std::size_t>(std::clamp<std::int64_t>(size_ - offset, 0, kBlock)));
  for (; offset < size_; offset += kBlock) {
    const std::span<std::byte> bytes(block.data(), static_cast<std::size_t>(std::min(kBlock, size_ - offset)));
    read(offset, bytes);
    visit(offset, bytes);
  }
  (void)::posix_fadvise(fd_, 0, 0, POSIX_FADV_NORMAL);
}

}  // namespace spillway
