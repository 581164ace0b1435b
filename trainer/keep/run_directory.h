// The directory of `--save`: run.json, plan.json, log.jsonl and checkpoints/STEP/. Everything is written beside its place and
// renamed into it, so that a kill leaves the old file or the new one, never half of one. Not here: what is in a checkpoint
// (checkpoint.h), and files as such (files/posix_file.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/keep/run_lock.h"

namespace spillway {

enum class ExistingRun : std::uint8_t { refuse, go_on };

class RunDirectory {
 public:
  // Makes the directory and its parents where they lack, checks that it can be written, and holds it against other processes
  // until destroyed. A directory that already holds a run is an InputError unless it is to go on. Unfinished checkpoints are
  // removed. A new run that ends before it is kept takes with it what was made for it: its files, and directories that are empty
  // then; nothing half made stands in the way of the next try.
  RunDirectory(std::string path, ExistingRun existing);
  ~RunDirectory();
  RunDirectory(RunDirectory&& other) noexcept;
  RunDirectory& operator=(RunDirectory&&) = delete;

  const std::string& path() const noexcept { return path_; }
  std::string log_path() const { return path_ + "/log.jsonl"; }
  void keep() noexcept { is_kept_ = true; }
  const std::string& note() const noexcept { return held_.lock.note(); }  // of its lock, where there is something to say
  void write(std::string_view name, std::string_view text) const;         // "run.json", "plan.json"

  // A fresh directory to write the checkpoint of `step` into; it counts only once committed (which syncs every file in it).
  std::string begin_checkpoint(std::int64_t step) const;
  std::string commit_checkpoint(std::int64_t step) const;
  // Removes all but the newest `keep_last` (0: removes none).
  void prune_checkpoints(std::int64_t keep_last) const;

 private:
  struct Held {
    RunLock lock;
    std::vector<std::string> made;  // directories, the outermost first; then what a run writes there and was not there before
  };
  RunDirectory(std::string path, Held held);
  static Held hold(const std::string& path);
  void remove_what_was_made() const;

  std::string path_;
  Held held_;
  bool is_kept_ = true;
};

// Committed checkpoints of a run directory, steps ascending; for reading, without the lock.
std::vector<std::int64_t> checkpoint_steps(const std::string& run_directory);
std::string checkpoint_path(const std::string& run_directory, std::int64_t step);

}  // namespace spillway
