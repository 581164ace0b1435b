// One run at a time in a run directory: its file .lock, which the system locks, or, where the file system has no locks (NFS and
// Lustre as they are often mounted), which names the process that has it.
// Not here: what is in the directory (run_directory.h).
#pragma once

#include <string>

namespace spillway {

class RunLock {
 public:
  RunLock() = default;
  // Of a directory that is there. InputError where another process has it. The system lets go of the lock however the process
  // ends.
  explicit RunLock(const std::string& directory);
  ~RunLock();
  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&& other) noexcept;

  // Where there are no locks, what that means; else empty.
  const std::string& note() const noexcept { return note_; }

 private:
  int fd_ = -1;
  bool is_by_name_ = false;
  std::string note_;
};

}  // namespace spillway
