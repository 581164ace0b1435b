// The directory of `--save`: run.json, plan.json, log.jsonl and checkpoints/STEP/. Everything is written beside its place and
// renamed into it, so that a kill leaves the old file or the new one, never half of one.
// Not here: the contents of a checkpoint (checkpoint.h), files as such (files/posix_file.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/keep/run_lock.h"

namespace spillway {

enum class ExistingRun : std::uint8_t { refuse, go_on };

class RunDirectory {
 public:
  // Creates the directory and its missing parents, checks that it can be written, and locks it against other processes until
  // destroyed. A directory that already holds a run is an InputError unless that run goes on. Removes unfinished checkpoints. A
  // new run that ends before keep() removes what was made for it, its files and the directories that are then empty: nothing half
  // made hinders the next try.
  RunDirectory(std::string path, ExistingRun existing);
  ~RunDirectory();
  RunDirectory(RunDirectory&& other) noexcept;
  RunDirectory& operator=(RunDirectory&&) = delete;

  const std::string& path() const noexcept { return path_; }
  std::string log_path() const { return path_ + "/log.jsonl"; }
  void keep() noexcept { is_kept_ = true; }
  const std::string& note() const noexcept { return held_.lock.note(); }  // the lock's note, if there is something to say
  void write(std::string_view name, std::string_view text) const;         // "run.json", "plan.json"

  // Makes a new directory for the checkpoint of `step`. The checkpoint counts only once it is committed, which syncs every file
  // in it.
  std::string begin_checkpoint(std::int64_t step) const;
  std::string commit_checkpoint(std::int64_t step) const;
  // Removes all checkpoints but the newest `keep_last` and that of the step `best`; 0 removes none.
  void prune_checkpoints(std::int64_t keep_last, std::optional<std::int64_t> best = std::nullopt) const;
  void remove_checkpoint(std::int64_t step) const;  // if it exists

 private:
  struct Held {
    RunLock lock;
    std::vector<std::string> made;  // new directories, the outermost first; then new files that the run writes there
  };
  RunDirectory(std::string path, Held held);
  static Held hold(const std::string& path);
  void remove_what_was_made() const;

  std::string path_;
  Held held_;
  bool is_kept_ = true;
};

// The steps of a run directory's committed checkpoints, ascending; for reading, without the lock.
std::vector<std::int64_t> checkpoint_steps(const std::string& run_directory);
std::string checkpoint_path(const std::string& run_directory, std::int64_t step);

}  // namespace spillway
