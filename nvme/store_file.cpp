#include "nvme/store_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <memory>
#include <system_error>

#include "memory/base/error.h"

namespace spillway {
namespace {

// The reserve where no cap is given: a disk filled to the last byte breaks other programs.
constexpr Bytes kLargestReserve = kGiB;
constexpr Bytes kReserveShare = 50;
// Bytes that a store puts into a directory besides its content: its identity and the lock.
constexpr Bytes kBesideContent = kIdentityBytes + kExtentAlignment;

std::string text_of(int error) { return std::generic_category().message(error); }

Bytes free_bytes(const std::string& directory) {
  struct statvfs info{};
  if (statvfs(directory.c_str(), &info) != 0) throw IoError(fmt::format("--nvme {}: statvfs: {}", directory, text_of(errno)));
  if (info.f_blocks == 0) return 2 * kUnknownFree;
  return static_cast<Bytes>(info.f_bavail) * static_cast<Bytes>(info.f_frsize);
}

}  // namespace

std::string store_file_path(const std::string& directory) { return directory + "/spillway-store.bin"; }

void check_store_directory(const std::string& directory) {
  struct stat info{};
  if (stat(directory.c_str(), &info) != 0) {
    throw InputError(fmt::format("--nvme {}: {}", directory, text_of(errno)),
                     "Create the directory first, on the disk that is to be used.");
  }
  if (!S_ISDIR(info.st_mode)) throw InputError(fmt::format("--nvme {}: not a directory", directory));
  if (access(directory.c_str(), W_OK | X_OK) != 0) {
    throw IoError(fmt::format("--nvme {}: cannot write there: {}", directory, text_of(errno)),
                  "Give --nvme a directory on a local disk that this user may write to.");
  }
}

std::vector<Bytes> available_bytes(std::span<const StoreDirectory> directories, Reserve reserve) {
  struct FileSystem {
    Bytes free = 0;
    Bytes uncapped = 0;  // directories that share what the capped ones leave
    Bytes beside = 0;
  };
  std::map<dev_t, FileSystem> systems;
  std::vector<FileSystem*> system_of;  // [directories]
  for (const StoreDirectory& directory : directories) {
    struct stat info{};
    if (stat(directory.path.c_str(), &info) != 0) throw IoError(fmt::format("--nvme {}: {}", directory.path, text_of(errno)));
    const auto [entry, first] = systems.try_emplace(info.st_dev);
    FileSystem& system = entry->second;
    if (first) system.free = free_bytes(directory.path);
    struct stat leftover{};
    if (!DirectoryLock::in_use(directory.path) && stat(store_file_path(directory.path).c_str(), &leftover) == 0) {
      system.free += static_cast<Bytes>(leftover.st_blocks) * 512;
    }
    if (directory.cap_bytes == 0) ++system.uncapped;
    if (reserve == Reserve::kept) system.beside += kBesideContent;
    system_of.push_back(&system);
  }
  for (auto& [device, system] : systems) system.free -= std::min(system.free, system.beside);
  std::vector<Bytes> available(directories.size(), 0);
  for (std::size_t i = 0; i < directories.size(); ++i) {
    if (directories[i].cap_bytes == 0) continue;
    available[i] = std::min(directories[i].cap_bytes, system_of[i]->free);
    system_of[i]->free -= available[i];
  }
  for (auto& [device, system] : systems) {
    if (reserve == Reserve::kept) system.free -= std::min(system.free / kReserveShare, kLargestReserve);
  }
  for (std::size_t i = 0; i < directories.size(); ++i) {
    if (directories[i].cap_bytes == 0) available[i] = system_of[i]->free / system_of[i]->uncapped;
  }
  return available;
}

StoreFile::StoreFile(const StoreDirectory& directory, StoreContent content, std::span<const std::uint64_t> orphans,
                     const LogSink& log)
    : directory_(directory.path),
      path_(store_file_path(directory.path)),
      is_nameless_(content == StoreContent::nameless),
      owner_(getpid()) {
  check_store_directory(directory_);
  lock_.emplace(directory_);
  if (content == StoreContent::existing) return;
  struct stat info{};
  if (lstat(path_.c_str(), &info) != 0) return;
  const auto identity = read_store_identity(directory_);
  const bool reclaimed = identity && std::ranges::find(orphans, identity->store_id) != orphans.end();
  if (identity && !reclaimed) {
    throw IoError(
        fmt::format("--nvme {}: {} ({} bytes) holds the state of a run that can go on", directory_, path_, info.st_size),
        "Go on with that run by --load, remove the file if it is not to go on, or give another directory.");
  }
  if (!reclaimed && lock_->dead_owner().empty()) {
    throw IoError(fmt::format("--nvme {}: {} ({} bytes) was kept by an earlier run", directory_, path_, info.st_size),
                  "Remove it if that run is not to go on, or give another directory.");
  }
  if (unlink(path_.c_str()) != 0) throw IoError(fmt::format("cannot remove {}: {}", path_, text_of(errno)));
  if (!log) return;
  log(fmt::format("--nvme {}: removed {} bytes that {} left when it {}", directory_, info.st_size,
                  lock_->dead_owner().empty() ? "a run" : lock_->dead_owner(), lock_->dead_owner().empty() ? "ended" : "died"));
}

StoreFile::~StoreFile() {
  if (!path_.empty() && !keep_ && getpid() == owner_) unlink(path_.c_str());
}

StoreFile::StoreFile(StoreFile&& other) noexcept
    : directory_(std::move(other.directory_)),
      path_(std::exchange(other.path_, {})),
      lock_(std::move(other.lock_)),
      file_(std::move(other.file_)),
      keep_(other.keep_),
      is_nameless_(other.is_nameless_),
      owner_(other.owner_) {
  other.lock_.reset();
}

void StoreFile::create(Bytes bytes, const LogSink& log) {
  if (is_nameless_) file_ = Descriptor(open(directory_.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600));
  if (file_.get() < 0) {
    file_ = Descriptor(open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (file_.get() < 0) throw IoError(fmt::format("cannot create {}: {}", path_, text_of(errno)));
    if (is_nameless_) unlink(path_.c_str());  // for file systems that make no file without a name
  }
  keep_ = is_nameless_;
  if (bytes == 0) return;
  const auto full = [&](const std::string& reason) {
    return IoError(
        fmt::format("--nvme {}: needs {} bytes, {} are available: {}", directory_, bytes, free_bytes(directory_), reason),
        "Free space there, spread the run over more directories (--nvme is repeatable), or use --state compact.");
  };
  // The free space is asked for first: file systems fill up before they refuse, to the harm of others on the disk.
  if (bytes > free_bytes(directory_)) throw full("the disk is full");
  int rc = 0;
  do {
    rc = fallocate(file_.get(), 0, 0, bytes) == 0 ? 0 : errno;
  } while (rc == EINTR);
  if (rc == EOPNOTSUPP || rc == ENOSYS) {
    if (log) log(fmt::format("--nvme {}: this file system cannot reserve space; the disk may fill while training", directory_));
    rc = ftruncate(file_.get(), bytes) == 0 ? 0 : errno;
  }
  if (rc == EFBIG) {
    throw IoError(fmt::format("--nvme {}: needs a file of {} bytes: {}", directory_, bytes, text_of(rc)),
                  "Files of this process may not be so large: `ulimit -f` says how large.");
  }
  if (rc != 0) throw full(text_of(rc));
}

void StoreFile::open_existing() {
  file_ = Descriptor(open(path_.c_str(), O_RDWR | O_CLOEXEC));
  if (file_.get() < 0) throw IoError(fmt::format("cannot open {}: {}", path_, text_of(errno)));
}

void StoreFile::write_identity(const StoreIdentity& identity) {
  std::array<std::byte, kExtentAlignment> page{};
  encode_identity(identity, page);
  for (const Bytes offset : {size() - kIdentityBytes, size() - kExtentAlignment}) {
    const ssize_t written = pwrite(file_.get(), page.data(), page.size(), offset);
    if (written != std::ssize(page)) {
      throw IoError(
          fmt::format("write of {} bytes at offset {} of {} gave {}: {}", page.size(), offset, path_, written, text_of(errno)));
    }
    if (fsync(file_.get()) != 0) throw IoError(fmt::format("fsync of {} failed: {}", path_, text_of(errno)));
  }
  const Descriptor directory(open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0 || fsync(directory.get()) != 0)
    throw IoError(fmt::format("fsync of {} failed: {}", directory_, text_of(errno)));
}

void StoreFile::take_identity(const StoreIdentity& identity) {
  const auto found = read_store_identity(directory_);
  if (found == identity) return;
  if (found && found->is_same_file(identity)) return write_identity(identity);
  throw IoError(fmt::format("{}: not the file of directory {} of {} of the store that is to be opened", path_,
                            identity.directory + 1, identity.directories),
                "Give the same directories, in the same order, as the run that kept them.");
}

bool StoreFile::make_direct() {
  const int flags = fcntl(file_.get(), F_GETFL);
  if (fcntl(file_.get(), F_SETFL, flags | O_DIRECT) != 0) return false;
  const std::unique_ptr<void, void (*)(void*)> block(std::aligned_alloc(kExtentAlignment, kExtentAlignment), std::free);
  if (size() == 0 || pread(file_.get(), block.get(), kExtentAlignment, 0) >= 0 || errno != EINVAL) return true;
  fcntl(file_.get(), F_SETFL, flags);
  return false;
}

Bytes StoreFile::size() const {
  struct stat info{};
  if (fstat(file_.get(), &info) != 0) throw IoError(fmt::format("{}: fstat: {}", path_, text_of(errno)));
  return info.st_size;
}

}  // namespace spillway
