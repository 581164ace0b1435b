// A file that grows by whole records while a run goes on. A resumed run first cuts it back to its length at the resumed step.
// Not here: the contents of the records (trainer/show/log.h, trainer/show/csv_log.h, trainer/show/tensorboard.h).
#pragma once

#include <string>
#include <string_view>

#include "memory/base/types.h"

namespace spillway {

class AppendFile {
 public:
  // Creates the file if it does not exist and cuts off everything beyond `keep` bytes. Throws IoError, also if it is not a
  // regular file.
  AppendFile(std::string path, Bytes keep);
  ~AppendFile();
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&&) = delete;

  // Hands the record to the system before it returns: a killed process loses no record, a machine that loses power may.
  void append(std::string_view record);

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace spillway
