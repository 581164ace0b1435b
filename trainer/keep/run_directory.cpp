#include "trainer/keep/run_directory.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "files/posix_file.h"
#include "memory/base/error.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kUnfinished = ".partial";  // suffix that write_text_file leaves behind if it is killed

[[noreturn]] void fail(const std::string& path, std::string_view what, int error) {
  throw IoError(fmt::format("{}: {} failed: {}", path, what, std::strerror(error)),
                error == ENOSPC || error == EDQUOT                    ? "free some space, or choose another --save directory"
                : error == EACCES || error == EPERM || error == EROFS ? "choose a --save directory that can be written"
                                                                      : "");
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
  if (error || !fs::is_directory(path, error)) fail(path, "making the directory", error ? error.value() : ENOTDIR);
}

std::vector<fs::path> children_of(const std::string& directory) {
  std::vector<fs::path> children;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    children.push_back(entry->path());
  }
  if (error) fail(directory, "reading the directory", error.value());
  return children;
}

// Syncs everything below `directory`, then the directory itself.
void sync_tree(const std::string& directory) {
  for (const fs::path& child : children_of(directory)) {
    std::error_code ignored;
    if (fs::is_directory(child, ignored)) {
      sync_tree(child.string());
    } else {
      PosixFile::open_to_read(child).sync();
    }
  }
  sync_directory(directory);
}

}  // namespace

RunDirectory::Held RunDirectory::hold(const std::string& path) {
  Held held;
  std::error_code ignored;
  for (fs::path missing = fs::absolute(path).lexically_normal(); !fs::exists(missing, ignored) && missing != missing.root_path();
       missing = missing.parent_path()) {
    if (missing.has_filename()) held.made.insert(held.made.begin(), missing.string());
  }
  make_directories(path);
  held.lock = RunLock(path);
  return held;
}

RunDirectory::RunDirectory(std::string path, ExistingRun existing) : RunDirectory(path, hold(path)) {
  if (existing == ExistingRun::refuse) {
    std::error_code ignored;
    if (fs::exists(path_ + "/run.json", ignored)) {
      throw InputError(fmt::format("--save: found {}, which already holds a run, allowed: a directory without one", path_),
                       fmt::format("go on with that run by --load {}, or choose another directory", path_));
    }
    for (const char* name : {"base.json", "begun-with", "best.json", "checkpoints", "data-files.json", "log.jsonl", "plan.json",
                             "run.json", "standard-input"}) {
      if (const fs::path file = fs::path(path_) / name; !fs::exists(file, ignored)) held_.made.push_back(file.string());
    }
    is_kept_ = false;
  }
  make_directories(path_ + "/checkpoints");
  for (const std::string& directory : {path_, path_ + "/checkpoints"}) {
    for (const fs::path& child : children_of(directory)) {
      if (child.string().ends_with(kUnfinished)) remove_tree(child.string());
    }
  }
}

RunDirectory::RunDirectory(std::string path, Held held) : path_(std::move(path)), held_(std::move(held)) {}

RunDirectory::~RunDirectory() {
  if (!is_kept_) remove_what_was_made();
}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept
    : path_(std::move(other.path_)), held_(std::exchange(other.held_, Held())), is_kept_(std::exchange(other.is_kept_, true)) {}

// Directories that contain somebody else's files are not empty, so they stay.
void RunDirectory::remove_what_was_made() const {
  std::error_code ignored;
  fs::remove(fs::path(path_) / ".lock", ignored);
  for (auto made = held_.made.rbegin(); made != held_.made.rend(); ++made) {
    // These did not exist before this run.
    const std::string name = fs::path(*made).filename().string();
    if (name == "begun-with" || name == "standard-input") fs::remove_all(*made, ignored);
    fs::remove(*made, ignored);
  }
}

void RunDirectory::write(std::string_view name, std::string_view text) const {
  write_text_file(fmt::format("{}/{}", path_, name), std::string(text));
}

std::string RunDirectory::begin_checkpoint(std::int64_t step) const {
  const std::string unfinished = checkpoint_path(path_, step) + std::string(kUnfinished);
  remove_tree(unfinished);
  make_directories(unfinished);
  return unfinished;
}

std::string RunDirectory::commit_checkpoint(std::int64_t step) const {
  const std::string place = checkpoint_path(path_, step);
  const std::string unfinished = place + std::string(kUnfinished);
  sync_tree(unfinished);
  // A rename cannot replace a directory that has files. A checkpoint of the same step (from a run that went back and came here
  // again) is exchanged with the new one, so that one of them exists at every instant. On file systems that cannot exchange, it
  // moves out of the way first.
  const std::string former = place + ".former" + std::string(kUnfinished);
  remove_tree(former);
  std::error_code ignored;
  if (fs::exists(place, ignored)) {
    if (::renameat2(AT_FDCWD, unfinished.c_str(), AT_FDCWD, place.c_str(), RENAME_EXCHANGE) == 0) {
      sync_directory(path_ + "/checkpoints");
      remove_tree(unfinished);
      return place;
    }
    if (::rename(place.c_str(), former.c_str()) != 0) fail(place, "moving the former checkpoint away", errno);
  }
  if (::rename(unfinished.c_str(), place.c_str()) != 0) fail(place, "renaming the checkpoint into place", errno);
  sync_directory(path_ + "/checkpoints");
  remove_tree(former);
  return place;
}

void RunDirectory::prune_checkpoints(std::int64_t keep_last, std::optional<std::int64_t> best) const {
  const std::vector<std::int64_t> steps = checkpoint_steps(path_);
  if (keep_last <= 0) return;
  for (std::int64_t i = 0; i + keep_last < static_cast<std::int64_t>(steps.size()); ++i) {
    if (const std::int64_t step = steps[static_cast<std::size_t>(i)]; step != best) remove_checkpoint(step);
  }
}

void RunDirectory::remove_checkpoint(std::int64_t step) const {
  // Renames first, so that a kill during the removal leaves no checkpoint with missing files.
  const std::string place = checkpoint_path(path_, step);
  const std::string doomed = place + std::string(kUnfinished);
  std::error_code ignored;
  if (!fs::exists(place, ignored)) return;
  remove_tree(doomed);
  if (::rename(place.c_str(), doomed.c_str()) != 0) fail(place, "removing", errno);
  remove_tree(doomed);
}

std::vector<std::int64_t> checkpoint_steps(const std::string& run_directory) {
  std::vector<std::int64_t> steps;
  std::error_code ignored;
  const std::string directory = run_directory + "/checkpoints";
  if (!fs::exists(directory, ignored)) return steps;
  for (const fs::path& child : children_of(directory)) {
    if (const auto step = step_of(child.filename().string())) steps.push_back(*step);
  }
  std::ranges::sort(steps);
  return steps;
}

std::string checkpoint_path(const std::string& run_directory, std::int64_t step) {
  return fmt::format("{}/checkpoints/{}", run_directory, step);
}

}  // namespace spillway
