// A file descriptor that closes itself, and whole reads and writes at an offset.
// Not here: direct I/O and queues (nvme/).
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "memory/base/types.h"

namespace spillway {

class PosixFile {
 public:
  PosixFile() = default;
  static PosixFile open_to_read(const std::filesystem::path& path);  // InputError if there is no such regular file
  static PosixFile create(const std::filesystem::path& path);        // empties it if it exists
  ~PosixFile();
  PosixFile(PosixFile&& other) noexcept;
  PosixFile& operator=(PosixFile&& other) noexcept;

  Bytes size() const;
  void read(Bytes offset, std::span<std::byte> out) const;  // IoError if the file ends before `out` is full
  void write(Bytes offset, std::span<const std::byte> data) const;
  void sync() const;  // fsync
  const std::filesystem::path& path() const { return path_; }

 private:
  PosixFile(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}
  int fd_ = -1;
  std::filesystem::path path_;
};

// Makes a rename or a new name in `directory` survive a power cut.
void sync_directory(const std::filesystem::path& directory);

// Advice for when the system refuses a file with this errno; empty if nothing helps.
std::string help_for(int error);

// Reads a small text file whole. Throws InputError if it is larger than `limit`.
std::string read_text_file(const std::filesystem::path& path, Bytes limit);

// For files that are written by renaming a finished file over `path`: throws InputError if that would replace a device, a pipe or
// a directory.
void refuse_to_replace(const std::filesystem::path& path);

// Writes `path` by way of a temporary name: the file is there whole, or as it was before. A device or a pipe is written to
// directly.
void write_text_file(const std::filesystem::path& path, const std::string& text);

}  // namespace spillway
