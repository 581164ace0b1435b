// A checkpoint of a run: its state after a step. The run directory keeps several.
// Not here: the arrays of the state (state_io.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trainer/keep/run_directory.h"
#include "trainer/keep/state_io.h"

namespace spillway {

// Commits the state file that `write` fills, with the sums that it returns beside the state. If `write` throws, nothing stays
// behind. What the run's directory says of its base and of its loss scale goes with it.
void write_checkpoint(const RunDirectory& directory, std::int64_t step,
                      const std::function<StateSums(const std::string& file)>& write);
void save_checkpoint(const RunDirectory& directory, std::int64_t step, Executor& executor, const Plan& plan,
                     const UnitGraph& graph);

// The newest checkpoint of the run directory. Throws InputError if there is none.
struct LoadedCheckpoint {
  std::int64_t step = 0;
  std::string path;
};
LoadedCheckpoint newest_checkpoint(const std::string& run_directory);
[[noreturn]] void refuse_without_checkpoint(const std::string& run_directory);
// The checkpoint of a step. Throws an InputError that names the steps that exist.
LoadedCheckpoint checkpoint_of_step(const std::string& run_directory, std::int64_t step);
std::string checkpoint_state_file(const std::string& checkpoint_path);
void load_checkpoint(const LoadedCheckpoint& checkpoint, Executor& executor, const Plan& plan, const UnitGraph& graph);

}  // namespace spillway
