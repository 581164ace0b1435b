#include "trainer/keep/run_lock.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "files/posix_file.h"
#include "memory/base/error.h"

namespace spillway {
namespace {

// Start time of the process, in ticks since the machine started: with its number it identifies the process. Empty if it does not
// exist.
std::string beginning_of(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text;
  std::getline(file, text);
  const std::size_t end = text.rfind(')');  // end of the name, which may contain anything
  if (end == text.npos) return {};
  std::istringstream fields(text.substr(end + 1));
  std::string field;
  constexpr int kFieldsToBeginning = 20;
  for (int i = 0; i < kFieldsToBeginning; ++i) fields >> field;
  return field;
}

std::string host() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string words_of_owner(pid_t process) { return fmt::format("{} {} {}\n", host(), process, beginning_of(process)); }

// Returns true if the process named in a lock file still runs, as far as this host can see.
bool names_a_live_owner(const std::string& text) {
  std::istringstream fields(text);
  std::string at, beginning;
  pid_t process = 0;
  if (!(fields >> at >> process >> beginning) || at != host() || process == getpid()) return false;
  return !beginning.empty() && beginning_of(process) == beginning;
}

bool has_no_locks(int error) {
  return error == ENOSYS || error == ENOLCK || error == EOPNOTSUPP || error == EINVAL || error == EPROTONOSUPPORT;
}

// Locks the open file, as flock does. If the file system has no flock, it may have the second kind of lock.
int lock_file(int fd) {
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return 0;
  if (errno == EWOULDBLOCK || !has_no_locks(errno)) return errno;
  struct flock whole = {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return ::fcntl(fd, F_OFD_SETLK, &whole) == 0 ? 0 : errno == EACCES ? EAGAIN : errno;
}

[[noreturn]] void refuse_shared(const std::string& directory) {
  throw InputError(fmt::format("--save: found {}, which another run is using, allowed: a directory of its own", directory));
}

}  // namespace

RunLock::RunLock(const std::string& directory) {
  const std::string name = directory + "/.lock";
  const int fd = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    const int error = errno;
    throw IoError(fmt::format("{}: writing into it failed: {}", directory, std::strerror(error)),
                  error == ENOSPC || error == EDQUOT ? "free some space, or choose another --save directory"
                                                     : "choose a --save directory that can be written");
  }
  fd_ = fd;
  const int error = lock_file(fd);
  if (error == 0) return;
  if (error == EWOULDBLOCK) {
    ::close(std::exchange(fd_, -1));
    refuse_shared(directory);
  }
  if (!has_no_locks(error)) {
    ::close(std::exchange(fd_, -1));
    throw IoError(fmt::format("{}: locking failed: {}", directory, std::strerror(error)), help_for(error));
  }
  std::array<char, 512> text{};
  const ssize_t size = ::pread(fd, text.data(), text.size() - 1, 0);
  if (size > 0 && names_a_live_owner(text.data())) {
    ::close(std::exchange(fd_, -1));
    refuse_shared(directory);
  }
  const std::string owner = words_of_owner(getpid());
  is_by_name_ = ::ftruncate(fd, 0) == 0 && ::pwrite(fd, owner.data(), owner.size(), 0) == std::ssize(owner);
  note_ = fmt::format("{}: its file system has no locks ({}): a second run in it is noticed on this host alone", directory,
                      std::strerror(error));
}

RunLock::~RunLock() {
  if (fd_ < 0) return;
  if (is_by_name_ && ::ftruncate(fd_, 0) != 0) {
    // The name stays in the file; the next run sees that its process has ended.
  }
  ::close(fd_);
}

RunLock::RunLock(RunLock&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), is_by_name_(other.is_by_name_), note_(std::move(other.note_)) {}

RunLock& RunLock::operator=(RunLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(is_by_name_, other.is_by_name_);
  std::swap(note_, other.note_);
  return *this;
}

}  // namespace spillway
