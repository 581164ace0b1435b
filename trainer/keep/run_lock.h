// Allows one run at a time in a run directory. The system locks the file .lock; on a file system without locks (NFS and Lustre,
// as they are often mounted) the file names the process that holds it.
// Not here: the contents of the directory (run_directory.h).
#pragma once

#include <string>

namespace spillway {

class RunLock {
 public:
  RunLock() = default;
  // Locks an existing directory. Throws InputError if another process holds it. The system releases the lock however the process
  // ends.
  explicit RunLock(const std::string& directory);
  ~RunLock();
  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&& other) noexcept;

  // The consequence if the file system has no locks; else empty.
  const std::string& note() const noexcept { return note_; }

 private:
  int fd_ = -1;
  bool is_by_name_ = false;
  std::string note_;
};

}  // namespace spillway
