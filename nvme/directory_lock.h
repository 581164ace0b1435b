// One store at a time in a directory: a locked file beside the store's, with the owner's process id and host in it.
// The kernel drops the lock when its process dies, however it dies; the file that stays behind tells the next owner of it.
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
  // IoError where another process (named) has it, or where the directory is not writable.
  explicit DirectoryLock(const std::string& directory);
  ~DirectoryLock();  // removes the file, unless in a forked child
  DirectoryLock(DirectoryLock&& other) noexcept;
  DirectoryLock& operator=(DirectoryLock&& other) noexcept;

  // "process 12 on host x", where the previous owner died without cleaning up; else empty.
  const std::string& dead_owner() const noexcept { return dead_owner_; }

  // Whether an owner has the directory now. Takes nothing: who wants to own it meanwhile does not notice.
  static bool in_use(const std::string& directory);

 private:
  std::string path_;  // empty when moved from
  Descriptor file_;
  pid_t owner_ = 0;
  std::string dead_owner_;
};

}  // namespace spillway
