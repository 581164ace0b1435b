// The XXH3 of every array of a checkpoint, in a file beside its state: if the disk has changed an array, it is named and not
// trained on.
// Not here: state in a store, where each extent has its own hash (nvme/commit_record.h).
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
// Throws IoError if the file is missing or damaged.
StateSums read_state_sums(const std::string& state_file);
std::string state_sums_file(const std::string& state_file);

// A SafetensorsWriter that also sums the arrays that it writes.
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

// Reads an array of the file and checks it. Throws IoError if it does not match its sum.
void check_state_array(const StateSums& sums, const std::string& state_file, const PosixFile& file, const StoredTensor& array);
// Throws IoError if the sum found is not the array's sum.
void check_state_sum(const StateSums& sums, const std::string& state_file, std::string_view array, std::uint64_t found);
// Reads and checks all arrays of the file and returns their bytes. Throws IoError if one does not match.
Bytes check_state_file(const std::string& state_file);

}  // namespace spillway
