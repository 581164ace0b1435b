// Everything that a run began with besides its flags, as its directory keeps it: copies of the configuration, the tokenizer and
// the chat templates (begun-with/), and the sizes and digests of its data files (data-files.json). Also finds what has changed
// since.
// Not here: flags (run.json), checkpoints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "memory/base/types.h"
#include "models/config.h"
#include "trainer/options/options.h"

namespace spillway {

// Copies the tokenizer's files and chat templates that a run uses, and the model's settings for generation. `to` must exist.
void copy_companions(const RunOptions& options, const std::filesystem::path& to);

// Copies the files into a run directory, in place of the former copies.
void keep_model_files(const std::string& run_directory, const RunOptions& options, const ModelConfig& config);

// Throws InputError if the run in `options.checkpoint.load` began with another model than `config`.
void refuse_other_model(const RunOptions& options, const ModelConfig& config);
// What determines what a model computes, by name and in words, the most important first.
std::vector<std::pair<std::string, std::string>> properties_of(const ModelConfig& config);
// The first difference, as "rope theta 10000, now 20000"; empty if both models compute the same.
std::string difference_of(const ModelConfig& before, const ModelConfig& now);
// One sentence for each file that differs from the one that the run began with.
std::vector<std::string> changes_of_model_files(const RunOptions& options);

struct DataFile {
  std::string flag;  // --data or --eval-data
  std::string path;
  Bytes bytes = 0;
  std::uint64_t digest = 0;  // of its contents
  bool operator==(const DataFile&) const = default;
};
// Reads all data files.
std::vector<DataFile> data_files_of(const RunOptions& options);
void keep_data_files(const std::string& run_directory, const std::vector<DataFile>& files);
// Of what a run evaluates on: --eval-data, or the rows that --eval-split holds back.
std::uint64_t hash_of_evaluated(const std::vector<DataFile>& files, const RunOptions& options);
// Sentences, as above; none if the run has no record of its data.
std::vector<std::string> changes_of_data(const std::string& run_directory, const std::vector<DataFile>& now);

}  // namespace spillway
