#include "trainer/run_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <utility>

#include "memory/error.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kUnfinished = ".unfinished";

[[noreturn]] void fail(const std::string& path, std::string_view what, int error) {
  throw IoError(fmt::format("{}: {} failed: {}", path, what, std::strerror(error)),
                error == ENOSPC || error == EDQUOT                     ? "free some space, or choose another --save directory"
                : error == EACCES || error == EPERM || error == EROFS ? "choose a --save directory that can be written"
                                                                      : "");
}

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

std::string parent_of(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::optional<std::int64_t> step_of(const std::string& name) {
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() || step < 0 || name != std::to_string(step)) return std::nullopt;
  return step;
}

void remove_tree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) fail(path, "removing", error.value());
}

void make_directories(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error || !fs::is_directory(path)) fail(path, "making the directory", error ? error.value() : ENOTDIR);
}

}  // namespace

void sync_path(const std::string& path) {
  const Descriptor file(path, O_RDONLY);
  if (file.get() < 0) fail(path, "opening", errno);
  if (::fsync(file.get()) != 0) fail(path, "fsync", errno);
}

void write_file_atomically(const std::string& path, std::string_view text) {
  const std::string temporary = path + std::string(kUnfinished);
  try {
    const Descriptor file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
    if (file.get() < 0) fail(temporary, "opening", errno);
    std::size_t done = 0;
    while (done < text.size()) {
      const ssize_t count = ::write(file.get(), text.data() + done, text.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail(path, fmt::format("writing {} bytes", text.size()), errno);
      done += static_cast<std::size_t>(count);
    }
    if (::fsync(file.get()) != 0) fail(path, "fsync", errno);
    if (::rename(temporary.c_str(), path.c_str()) != 0) fail(path, "renaming the new file into place", errno);
  } catch (const IoError&) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_path(parent_of(path));
}

std::string read_small_file(const std::string& path, std::int64_t limit) {
  const Descriptor file(path, O_RDONLY);
  if (file.get() < 0) throw IoError(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
  std::string text;
  char block[1 << 14];
  while (true) {
    const ssize_t count = ::read(file.get(), block, sizeof block);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw IoError(fmt::format("{}: reading at {} failed: {}", path, text.size(), std::strerror(errno)));
    if (count == 0) return text;
    text.append(block, static_cast<std::size_t>(count));
    if (static_cast<std::int64_t>(text.size()) > limit) throw InputError(fmt::format("{}: found more than {} bytes, allowed: at most that", path, limit));
  }
}

RunDirectory::RunDirectory(std::string path, ExistingRun existing) : path_(std::move(path)) {
  make_directories(path_);
  Descriptor lock(path_ + "/.lock", O_RDWR | O_CREAT);
  if (lock.get() < 0) fail(path_, "writing into it", errno);
  // Held by the open file: the system lets it go however the process ends.
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      throw InputError(fmt::format("--save: found {}, which another run is using, allowed: a directory of its own", path_));
    }
    fail(path_, "locking", errno);
  }
  if (existing == ExistingRun::refuse && fs::exists(path_ + "/run.json")) {
    throw InputError(fmt::format("--save: found {}, which already holds a run, allowed: a directory without one", path_),
                     fmt::format("go on with that run by --load {}, or choose another directory", path_));
  }
  make_directories(path_ + "/checkpoints");
  for (const std::string& directory : {path_, path_ + "/checkpoints"}) {
    for (const auto& entry : fs::directory_iterator(directory)) {
      if (entry.path().filename().string().ends_with(kUnfinished)) remove_tree(entry.path().string());
    }
  }
  lock_fd_ = lock.release();
}

RunDirectory::~RunDirectory() {
  if (lock_fd_ >= 0) ::close(lock_fd_);
}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept
    : path_(std::move(other.path_)), lock_fd_(std::exchange(other.lock_fd_, -1)) {}

void RunDirectory::write(std::string_view name, std::string_view text) const { write_file_atomically(fmt::format("{}/{}", path_, name), text); }

std::string RunDirectory::begin_checkpoint(std::int64_t step) const {
  const std::string unfinished = checkpoint_path(path_, step) + std::string(kUnfinished);
  remove_tree(unfinished);
  make_directories(unfinished);
  return unfinished;
}

std::string RunDirectory::commit_checkpoint(std::int64_t step) const {
  const std::string place = checkpoint_path(path_, step);
  const std::string unfinished = place + std::string(kUnfinished);
  for (const auto& entry : fs::recursive_directory_iterator(unfinished)) {
    if (entry.is_regular_file() || entry.is_directory()) sync_path(entry.path().string());
  }
  sync_path(unfinished);
  // A checkpoint of the same step (a run that went back and came here again) makes way first: a directory cannot replace one with files.
  const std::string former = place + ".former" + std::string(kUnfinished);
  remove_tree(former);
  if (fs::exists(place) && ::rename(place.c_str(), former.c_str()) != 0) fail(place, "moving the former checkpoint away", errno);
  if (::rename(unfinished.c_str(), place.c_str()) != 0) fail(place, "renaming the checkpoint into place", errno);
  sync_path(path_ + "/checkpoints");
  remove_tree(former);
  return place;
}

void RunDirectory::prune_checkpoints(std::int64_t keep_last) const {
  const std::vector<std::int64_t> steps = checkpoint_steps(path_);
  if (keep_last <= 0) return;
  for (std::int64_t i = 0; i + keep_last < static_cast<std::int64_t>(steps.size()); ++i) {
    // Renamed first, so that a kill within the removal leaves no checkpoint with files missing.
    const std::string place = checkpoint_path(path_, steps[static_cast<std::size_t>(i)]);
    const std::string doomed = place + std::string(kUnfinished);
    remove_tree(doomed);
    if (::rename(place.c_str(), doomed.c_str()) != 0) fail(place, "removing", errno);
    remove_tree(doomed);
  }
}

std::vector<std::int64_t> checkpoint_steps(const std::string& run_directory) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator entry(run_directory + "/checkpoints", error), end; !error && entry != end; entry.increment(error)) {
    if (const auto step = step_of(entry->path().filename().string())) steps.push_back(*step);
  }
  if (error && error != std::errc::no_such_file_or_directory) fail(run_directory + "/checkpoints", "reading the directory", error.value());
  std::ranges::sort(steps);
  return steps;
}

std::string checkpoint_path(const std::string& run_directory, std::int64_t step) {
  return fmt::format("{}/checkpoints/{}", run_directory, step);
}

}  // namespace spillway
