// A data file, opened for reading: exact reads at offsets, and one pass over all of it in blocks. Memory use does not depend on its size.
// Not here: what the bytes mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "memory/parallel.h"

namespace spillway {

class DataFile {
 public:
  // InputError (naming `flag`) where it is not a readable regular file.
  DataFile(std::string path, const std::string& flag);
  ~DataFile();
  DataFile(DataFile&& other) noexcept;
  DataFile& operator=(DataFile&&) = delete;

  const std::string& path() const noexcept { return path_; }
  std::int64_t size() const noexcept { return size_; }

  // Fills `bytes` from `offset`; an IoError where the file has become shorter than it was.
  void read(std::int64_t offset, std::span<std::byte> bytes) const;
  // Blocks from `offset` to the end, in order, each a multiple of 8 bytes long but for the last.
  void for_each_block(std::int64_t offset, FunctionRef<void(std::int64_t offset, std::span<const std::byte> block)> visit) const;

 private:
  std::string path_;
  std::int64_t size_ = 0;
  int fd_ = -1;
};

}  // namespace spillway
