// A file that grows by whole records while a run goes, and that a resumed run first cuts back to where it goes on.
// Not here: what the records are (trainer/show/log.h, trainer/show/csv_log.h, trainer/show/tensorboard.h).
#pragma once

#include <string>
#include <string_view>

#include "memory/types.h"

namespace spillway {

class AppendFile {
 public:
  // Made where there is none; what lies beyond `keep` bytes is cut off. IoError, also where it is no regular file.
  AppendFile(std::string path, Bytes keep);
  ~AppendFile();
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&&) = delete;

  // With the system when it returns: a killed process loses none, a machine that loses power may.
  void append(std::string_view record);

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace spillway
