// The store's file in one directory: its lock, its space, its removal.
// Not here: what lies in it (striping.h), reading and writing (store_channel.h).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "memory/base/types.h"
#include "nvme/directory_lock.h"
#include "nvme/store.h"
#include "nvme/store_identity.h"

namespace spillway {

std::string store_file_path(const std::string& directory);

// Stands for the free space of a file system that does not tell (ramfs, some of FUSE: 0 blocks in all).
inline constexpr Bytes kUnknownFree = Bytes{1} << 40;

// Throws InputError if it is missing or is no directory, IoError if this user cannot write to it.
void check_store_directory(const std::string& directory);

class StoreFile {
 public:
  // Checks and locks the directory. If the content is to be fresh, removes what a killed run left there; a store that has an
  // identity is removed only if it is one of `orphans`.
  StoreFile(const StoreDirectory& directory, StoreContent content, std::span<const std::uint64_t> orphans, const LogSink& log);
  ~StoreFile();  // removes the file unless it is kept, then the lock
  StoreFile(StoreFile&& other) noexcept;
  StoreFile& operator=(StoreFile&& other) = delete;

  // Reserves space for a fresh file. Throws IoError with the bytes needed and available; nothing stays behind then.
  void create(Bytes bytes, const LogSink& log);
  void open_existing();
  // Writes and syncs the file's last two pages, one after the other.
  void write_identity(const StoreIdentity& identity);
  // Throws IoError if the last pages are of another file or store. Updates the run that continues the store, and whether it
  // yields.
  void take_identity(const StoreIdentity& identity);
  // Turns on O_DIRECT and tries it. Returns false, and stays buffered, if the file system refuses.
  bool make_direct();
  void keep() noexcept { keep_ = true; }
  void discard() noexcept { keep_ = false; }

  int descriptor() const noexcept { return file_.get(); }
  const std::string& path() const noexcept { return path_; }
  Bytes size() const;

 private:
  std::string directory_;
  std::string path_;  // empty when moved from
  std::optional<DirectoryLock> lock_;
  Descriptor file_;
  bool keep_ = true;  // until this run has made a file
  bool is_nameless_ = false;
  pid_t owner_ = 0;
};

// kept: where no cap is given, some space is left to others on the disk. taken: the store may have all the space that was planned
// for it, because all else that the run has written since came out of the reserve.
enum class Reserve : std::uint8_t { kept, taken };

// Returns for each directory the bytes that it can give to a store's content: its cap or its free space, whichever is less.
// Directories on one file system share its free space, those with caps first; files that a killed run left count as free.
std::vector<Bytes> available_bytes(std::span<const StoreDirectory> directories, Reserve reserve = Reserve::kept);

}  // namespace spillway
