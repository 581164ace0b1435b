// The XXH3 of every array of a checkpoint, in a file beside its state: what the disk has changed since is named, not trained on.
// Not here: state in a store, where every extent has its own (nvme/commit_record.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/posix_file.h"
#include "files/safetensors.h"
#include "files/safetensors_writer.h"
#include "nvme/content_hash.h"

namespace spillway {

using StateSums = std::map<std::string, std::uint64_t, std::less<>>;

void write_state_sums(const std::string& state_file, const StateSums& sums);
// IoError where the file is missing or damaged.
StateSums read_state_sums(const std::string& state_file);
std::string state_sums_file(const std::string& state_file);

// A SafetensorsWriter that sums what it writes.
class SummedWriter {
 public:
  SummedWriter(const std::filesystem::path& file, const std::vector<TensorToWrite>& tensors) : writer_(file, tensors) {}

  void append(const std::string& name, std::span<const std::byte> data);
  StateSums finish();

 private:
  void close();

  SafetensorsWriter writer_;
  ContentHasher hasher_;
  std::string current_;  // array that is being written
  StateSums sums_;
};

// Reads an array of the file, and checks it. IoError as above.
void check_state_array(const StateSums& sums, const std::string& state_file, const PosixFile& file, const StoredTensor& array);
// IoError where an array is not the one that the sum was made of.
void check_state_sum(const StateSums& sums, const std::string& state_file, std::string_view array, std::uint64_t found);
// Reads the file's arrays, all of them, and returns the bytes of them. IoError as above.
Bytes check_state_file(const std::string& state_file);

}  // namespace spillway
