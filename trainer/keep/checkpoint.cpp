#include "trainer/keep/checkpoint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "memory/base/error.h"
#include "trainer/keep/base_hash.h"
#include "trainer/keep/loss_scale_file.h"

namespace spillway {
namespace {

constexpr const char* kStateFile = "/state.safetensors";

}  // namespace

void write_checkpoint(const RunDirectory& directory, std::int64_t step,
                      const std::function<StateSums(const std::string& file)>& write) {
  const std::string unfinished = directory.begin_checkpoint(step);
  try {
    const std::string file = unfinished + kStateFile;
    write_state_sums(file, write(file));
    if (const std::optional<std::uint64_t> base = read_base_hash(directory.path())) write_base_hash(unfinished, *base);
    if (const std::optional<LossScaleState> scale = loss_scale_after(directory.path(), step))
      write_loss_scale(unfinished, step, *scale);
    directory.commit_checkpoint(step);
  } catch (...) {
    // On a full disk a half-written checkpoint would hinder whatever the user does about it.
    std::error_code ignored;
    std::filesystem::remove_all(unfinished, ignored);
    throw;
  }
}

void save_checkpoint(const RunDirectory& directory, std::int64_t step, Executor& executor, const Plan& plan,
                     const UnitGraph& graph) {
  executor.flush();
  write_checkpoint(directory, step, [&](const std::string& file) { return save_state(executor, plan, graph, file); });
}

void refuse_without_checkpoint(const std::string& run_directory) {
  throw InputError(
      fmt::format("--load {}: the run has no checkpoint", run_directory),
      "A run saves at --save-interval and when it ends; this one did not come so far. To begin it anew, remove its directory.");
}

LoadedCheckpoint newest_checkpoint(const std::string& run_directory) {
  const std::vector<std::int64_t> steps = checkpoint_steps(run_directory);
  if (steps.empty()) refuse_without_checkpoint(run_directory);
  return {steps.back(), checkpoint_path(run_directory, steps.back())};
}

LoadedCheckpoint checkpoint_of_step(const std::string& run_directory, std::int64_t step) {
  const std::vector<std::int64_t> steps = checkpoint_steps(run_directory);
  if (std::ranges::find(steps, step) != steps.end()) return {step, checkpoint_path(run_directory, step)};
  throw InputError(fmt::format("--step: found {}, but {} has {}", step, run_directory,
                               steps.empty() ? "no checkpoint" : fmt::format("checkpoints of steps {}", fmt::join(steps, ", "))));
}

std::string checkpoint_state_file(const std::string& checkpoint_path) { return checkpoint_path + kStateFile; }

void load_checkpoint(const LoadedCheckpoint& checkpoint, Executor& executor, const Plan& plan, const UnitGraph& graph) {
  load_state(executor, plan, graph, checkpoint.path + kStateFile);
}

}  // namespace spillway
