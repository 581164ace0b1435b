#include "trainer/plan/checkpoint_room.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>

#include "memory/base/error.h"
#include "trainer/plan/disk_figures.h"
#include "trainer/plan/plan_figures.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

// The path itself, or its nearest parent that exists.
std::string there(const std::string& path) {
  std::error_code ignored;
  fs::path at = fs::absolute(path).lexically_normal();
  while (!fs::exists(at, ignored) && at != at.root_path()) at = at.parent_path();
  return at.string();
}

bool on_one_disk(const std::string& a, const std::string& b) {
  struct stat of_a = {}, of_b = {};
  return ::stat(a.c_str(), &of_a) == 0 && ::stat(b.c_str(), &of_b) == 0 && of_a.st_dev == of_b.st_dev;
}

// Number of checkpoints in the directory already.
std::int64_t checkpoints_in(const std::string& save) {
  std::int64_t count = 0;
  std::error_code error;
  for (fs::directory_iterator entry(save + "/checkpoints", error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::int64_t step = 0;
    const auto [rest, wrong] = std::from_chars(name.data(), name.data() + name.size(), step);
    count += wrong == std::errc() && rest == name.data() + name.size() ? 1 : 0;
  }
  return count;
}

// Number of checkpoints that will be written from `step` on.
std::int64_t checkpoints_to_come(const RunOptions& options, std::int64_t step) {
  const std::int64_t last = options.batch.train_iters, interval = options.checkpoint.save_interval;
  if (step >= last) return 0;
  if (interval == 0) return 1;
  return last / interval - step / interval + (last % interval != 0 ? 1 : 0);
}

}  // namespace

Bytes free_space_at(const std::string& path) {
  struct statvfs info{};
  if (::statvfs(there(path).c_str(), &info) != 0 || info.f_blocks == 0) return -1;
  if ((info.f_flag & ST_RDONLY) != 0) return -1;  // the code that writes there reports it
  return static_cast<Bytes>(info.f_bavail) * static_cast<Bytes>(info.f_frsize);
}

CheckpointRoom checkpoint_room(const PlannedRun& run, const PreparedModel& model, const RunOptions& options, std::int64_t step) {
  CheckpointRoom room;
  const std::string& save = options.checkpoint.save;
  if (save.empty()) return room;
  const std::int64_t to_come = checkpoints_to_come(options, step);
  const Bytes free = free_space_at(save);
  if (to_come == 0 || free < 0) return room;
  const DiskFigures disk = disk_figures_of(run, model, options, figures_of(run, model));
  room.is_known = true;
  room.free = free;
  room.of_checkpoint = disk.checkpoint_bytes;
  // A new checkpoint is complete before an older one is removed.
  const std::int64_t keep = options.checkpoint.keep_last, here = checkpoints_in(save);
  room.at_once = keep > 0 ? std::clamp<std::int64_t>(std::min(here + to_come, keep + 1) - here, 1, to_come) : to_come;
  // The best one lies beside the others, and the next best is complete before it goes.
  if (options.checkpoint.keep_best) room.at_once += here > 0 ? 1 : 2;
  room.needed = room.at_once * room.of_checkpoint;
  const bool has_store = !options.checkpoint.load.empty() && fs::exists(options.checkpoint.load + "/store.json");
  const auto directories = static_cast<Bytes>(options.memory.nvme.size());
  for (const NvmeDirectory& directory : options.memory.nvme) {
    if (!has_store && on_one_disk(directory.path, there(save))) room.needed += disk.nvme_bytes / directories;
  }
  return room;
}

void require_room_for_checkpoints(const PlannedRun& run, const PreparedModel& model, const RunOptions& options,
                                  std::int64_t step) {
  const CheckpointRoom room = checkpoint_room(run, model, options, step);
  if (room.fits()) return;
  const Bytes others = room.needed - room.at_once * room.of_checkpoint;
  const std::int64_t fitting = std::max<Bytes>(0, room.free - others) / std::max<Bytes>(1, room.of_checkpoint);
  throw BudgetError(
      fmt::format("--save {}: needs {} bytes for {} of {} bytes{}, {} are free on its disk", options.checkpoint.save, room.needed,
                  counted(room.at_once, "checkpoint"), room.of_checkpoint,
                  others > 0 ? fmt::format(" and {} of --nvme on the same disk", others) : "", room.free),
      fitting >= 2 ? fmt::format("Keep fewer: --keep-last {}, or a larger --save-interval; or name a directory on another disk.",
                                 fitting - 1)
                   : "Free space on that disk, or name a directory on another.");
}

}  // namespace spillway
