// What a run was begun with beside its flags, as its directory keeps it: copies of the configuration, the tokenizer and the chat
// templates (begun-with/), and what its data were, by size and digest (data-files.json). And what of it has changed since.
// Not here: flags (run.json), checkpoints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "memory/types.h"
#include "models/config.h"
#include "trainer/options/options.h"

namespace spillway {

// The tokenizer's files and chat templates that a run uses, and the model's settings for generation; `to` must exist.
void copy_companions(const RunOptions& options, const std::filesystem::path& to);

// Into a run directory, in the place of what was there.
void keep_model_files(const std::string& run_directory, const RunOptions& options, const ModelConfig& config);

// InputError where the run in `options.checkpoint.load` was begun with another model than this one.
void refuse_other_model(const RunOptions& options, const ModelConfig& config);
// "rope theta 10000, now 20000"; empty where both compute the same.
std::string difference_of(const ModelConfig& before, const ModelConfig& now);
// A sentence for each file that is no longer what the run was begun with.
std::vector<std::string> changes_of_model_files(const RunOptions& options);

struct DataFile {
  std::string flag;  // --data or --eval-data
  std::string path;
  Bytes bytes = 0;
  std::uint64_t digest = 0;  // of its content
  bool operator==(const DataFile&) const = default;
};
// Reads them all.
std::vector<DataFile> data_files_of(const RunOptions& options);
void keep_data_files(const std::string& run_directory, const std::vector<DataFile>& files);
// Sentences, as above; none where the run has no record of its data.
std::vector<std::string> changes_of_data(const std::string& run_directory, const std::vector<DataFile>& now);

}  // namespace spillway
