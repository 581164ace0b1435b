#include "nvme/directory_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "memory/base/error.h"

namespace spillway {
namespace {

std::string lock_path(const std::string& directory) { return directory + "/spillway-store.lock"; }

std::string owner_in(int fd) {
  std::array<char, 256> text{};
  const ssize_t size = pread(fd, text.data(), text.size(), 0);
  std::string owner(text.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  while (!owner.empty() && owner.back() == '\n') owner.pop_back();
  return owner;
}

std::string describe_self() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return fmt::format("process {} on host {}", getpid(), host.data());
}

// A lock of the whole file. Like flock's it excludes everyone else who has the file open, but one can ask about it without taking
// it. It belongs to the open file and not to the process: two of one process exclude each other, and closing another descriptor
// of the file does not drop it.
struct flock whole_file() {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

bool same_file(int fd, const std::string& path) {
  struct stat by_descriptor{}, by_path{};
  return fstat(fd, &by_descriptor) == 0 && stat(path.c_str(), &by_path) == 0 && by_descriptor.st_ino == by_path.st_ino &&
         by_descriptor.st_dev == by_path.st_dev;
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

DirectoryLock::DirectoryLock(const std::string& directory) : path_(lock_path(directory)), owner_(getpid()) {
  while (true) {
    file_ = Descriptor(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (file_.get() < 0) {
      const int error = errno;
      throw IoError(fmt::format("--nvme {}: cannot write there: {}", directory, std::generic_category().message(error)),
                    "Give --nvme a directory on a local disk that this user may write to.");
    }
    struct flock lock = whole_file();
    if (fcntl(file_.get(), F_OFD_SETLK, &lock) != 0) {
      const int error = errno;
      if (error == EINTR) continue;
      if (error != EAGAIN && error != EACCES) {
        throw IoError(fmt::format("--nvme {}: cannot lock {}: {}", directory, path_, std::generic_category().message(error)),
                      "Give --nvme a directory on a local disk.");
      }
      throw IoError(fmt::format("--nvme {} is in use by {}", directory, owner_in(file_.get())),
                    "Wait for that run to end, or give this one a directory of its own.");
    }
    // The previous owner may have removed the file between open and lock; then this lock is worth nothing.
    if (same_file(file_.get(), path_)) break;
  }
  dead_owner_ = owner_in(file_.get());
  const std::string self = describe_self() + "\n";
  if (ftruncate(file_.get(), 0) != 0 || pwrite(file_.get(), self.data(), self.size(), 0) != std::ssize(self)) {
    const int error = errno;
    unlink(path_.c_str());
    throw IoError(fmt::format("--nvme {}: cannot write {}: {}", directory, path_, std::generic_category().message(error)),
                  "Free some space there, or give --nvme another directory.");
  }
}

DirectoryLock::~DirectoryLock() {
  if (!path_.empty() && getpid() == owner_) unlink(path_.c_str());
}

DirectoryLock::DirectoryLock(DirectoryLock&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      file_(std::move(other.file_)),
      owner_(other.owner_),
      dead_owner_(std::move(other.dead_owner_)) {}

DirectoryLock& DirectoryLock::operator=(DirectoryLock&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  std::swap(owner_, other.owner_);
  std::swap(dead_owner_, other.dead_owner_);
  return *this;
}

bool DirectoryLock::in_use(const std::string& directory) {
  const Descriptor file(open(lock_path(directory).c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return false;
  struct flock lock = whole_file();
  return fcntl(file.get(), F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

}  // namespace spillway
