// Bytes in a file that nobody else sees: it lies in the directory for temporary files, has no name, and is gone with the process.
// Not here: what the bytes are.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "files/posix_file.h"

namespace spillway {

class HiddenFile {
 public:
  // `purpose` is for the message of an IoError: "text is tokenized into a temporary file".
  explicit HiddenFile(std::string_view purpose);
  ~HiddenFile();
  HiddenFile(const HiddenFile&) = delete;
  HiddenFile& operator=(const HiddenFile&) = delete;

  void write(std::span<const std::byte> bytes);  // behind those before
  Bytes size() const { return size_; }
  // The same bytes, with a position of its own; it outlives this object.
  PosixFile open() const;

 private:
  int fd_ = -1;
  PosixFile written_;
  Bytes size_ = 0;
};

}  // namespace spillway
