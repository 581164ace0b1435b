// Lets a directory have one store at a time: a locked file lies beside the store's, with the owner's process id and host in it.
// The kernel drops the lock when its process dies, however it dies; the file stays behind and tells the next owner about it.
// Not here: the store's own file (store_file.h).
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

namespace spillway {

// A file descriptor; -1 is none.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) noexcept : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const noexcept { return fd_; }

 private:
  int fd_;
};

class DirectoryLock {
 public:
  // Throws IoError if another process, which is named, has the directory, or if the directory is not writable.
  explicit DirectoryLock(const std::string& directory);
  ~DirectoryLock();  // removes the file, unless in a forked child
  DirectoryLock(DirectoryLock&& other) noexcept;
  DirectoryLock& operator=(DirectoryLock&& other) noexcept;

  // "process 12 on host x" if the previous owner died without cleaning up; else empty.
  const std::string& dead_owner() const noexcept { return dead_owner_; }

  // True if an owner has the directory now. Takes no lock, so that a process that wants to own it meanwhile does not notice.
  static bool in_use(const std::string& directory);

 private:
  std::string path_;  // empty when moved from
  Descriptor file_;
  pid_t owner_ = 0;
  std::string dead_owner_;
};

}  // namespace spillway
