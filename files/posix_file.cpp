#include "files/posix_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "memory/base/error.h"

namespace spillway {
namespace {

// Linux moves at most about 2 GiB in one call.
constexpr std::size_t kLargestCall = std::size_t{1} << 30;

std::string reason(int error) { return std::strerror(error); }

}  // namespace

std::string help_for(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT: return "Free space on that disk, or name a directory on another.";
    case EROFS: return "The disk is mounted read-only; name a directory on another.";
    case EACCES:
    case EPERM: return "Check the permissions of the file and its directory.";
    case ENOENT: return "Check that the directory exists.";
    case EFBIG: return "Files of this process may not be so large: `ulimit -f` says how large.";
    case EMFILE: return "This process has as many files open as it may: `ulimit -n` says how many.";
    default: return {};
  }
}

PosixFile PosixFile::open_to_read(const std::filesystem::path& path) {
  // O_NONBLOCK: a pipe in the place of a file must not hang the open.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR) throw InputError(fmt::format("{}: there is no such file", path.string()));
    throw IoError(fmt::format("{}: cannot be opened: {}", path.string(), reason(error)), help_for(error));
  }
  PosixFile file(fd, path);
  struct stat status{};
  if (::fstat(fd, &status) != 0) throw IoError(fmt::format("{}: cannot be examined: {}", path.string(), reason(errno)));
  if (!S_ISREG(status.st_mode)) {
    throw InputError(fmt::format("{}: is {}, not a regular file", path.string(),
                                 S_ISDIR(status.st_mode) ? "a directory" : "a device or pipe"));
  }
  return file;
}

PosixFile PosixFile::create(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) {
    const int error = errno;
    throw IoError(fmt::format("{}: cannot be created: {}", path.string(), reason(error)), help_for(error));
  }
  return PosixFile(fd, path);
}

PosixFile::~PosixFile() {
  if (fd_ >= 0) ::close(fd_);
}

PosixFile::PosixFile(PosixFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

PosixFile& PosixFile::operator=(PosixFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

Bytes PosixFile::size() const {
  struct stat status{};
  if (::fstat(fd_, &status) != 0) throw IoError(fmt::format("{}: cannot be examined: {}", path_.string(), reason(errno)));
  return status.st_size;
}

void PosixFile::read(Bytes offset, std::span<std::byte> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = ::pread(fd_, out.data() + done, std::min(out.size() - done, kLargestCall),
                                static_cast<off_t>(offset + static_cast<Bytes>(done)));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      throw IoError(
          fmt::format("{}: reading {} bytes at offset {} failed: {}", path_.string(), out.size(), offset, reason(errno)));
    }
    if (got == 0) {
      throw IoError(fmt::format("{}: ended at byte {} while {} bytes at offset {} were being read", path_.string(),
                                offset + static_cast<Bytes>(done), out.size(), offset),
                    "The file became shorter after it was opened; leave it alone while it is read.");
    }
    done += static_cast<std::size_t>(got);
  }
}

void PosixFile::write(Bytes offset, std::span<const std::byte> data) const {
  std::size_t done = 0;
  while (done < data.size()) {
    const ssize_t put = ::pwrite(fd_, data.data() + done, std::min(data.size() - done, kLargestCall),
                                 static_cast<off_t>(offset + static_cast<Bytes>(done)));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) {
      const int error = put < 0 ? errno : ENOSPC;
      throw IoError(
          fmt::format("{}: writing {} bytes at offset {} failed: {}", path_.string(), data.size(), offset, reason(error)),
          help_for(error));
    }
    done += static_cast<std::size_t>(put);
  }
}

void PosixFile::sync() const {
  if (::fsync(fd_) != 0) {
    const int error = errno;
    throw IoError(fmt::format("{}: could not be brought to the disk: {}", path_.string(), reason(error)), help_for(error));
  }
}

void sync_directory(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory.empty() ? "." : directory;
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw IoError(fmt::format("{}: cannot be opened: {}", path.string(), reason(errno)));
  const int result = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  // Some file systems cannot sync a directory and say EINVAL: there is nothing more that can be done there.
  if (result != 0 && error != EINVAL) {
    throw IoError(fmt::format("{}: could not be brought to the disk: {}", path.string(), reason(error)), help_for(error));
  }
}

std::string read_text_file(const std::filesystem::path& path, Bytes limit) {
  const PosixFile file = PosixFile::open_to_read(path);
  const Bytes size = file.size();
  if (size > limit)
    throw InputError(fmt::format("{}: has {} bytes; at most {} are read from a file of this kind", path.string(), size, limit));
  std::string text(static_cast<std::size_t>(size), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

namespace {

bool is_stream(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  return std::filesystem::is_character_file(status) || std::filesystem::is_fifo(status) ||
         std::filesystem::is_block_file(status) || std::filesystem::is_socket(status);
}

void write_stream(const std::filesystem::path& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  std::size_t done = 0;
  while (fd >= 0 && done < text.size()) {
    const ssize_t wrote = ::write(fd, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) break;
    done += static_cast<std::size_t>(wrote);
  }
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (fd < 0 || done < text.size())
    throw IoError(fmt::format("{}: cannot be written: {}", path.string(), reason(error)), help_for(error));
}

}  // namespace

void refuse_to_replace(const std::filesystem::path& path) {
  std::error_code ignored;
  if (is_stream(path) || std::filesystem::is_directory(path, ignored)) {
    throw InputError(fmt::format("{}: is not a regular file, and the finished file would take its place", path.string()),
                     "Give the name of a file.");
  }
}

void write_text_file(const std::filesystem::path& path, const std::string& text) {
  if (is_stream(path)) return write_stream(path, text);
  std::filesystem::path partial = path;
  partial += ".partial";
  try {
    const PosixFile file = PosixFile::create(partial);
    file.write(0, std::as_bytes(std::span(text)));
    file.sync();
    if (::rename(partial.c_str(), path.c_str()) != 0) {
      const int error = errno;
      throw IoError(fmt::format("{}: cannot be renamed to {}: {}", partial.string(), path.string(), reason(error)),
                    help_for(error));
    }
  } catch (...) {
    ::unlink(partial.c_str());
    throw;
  }
  sync_directory(path.parent_path());
}

}  // namespace spillway
