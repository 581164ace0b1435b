#include "trainer/keep/state_sums.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "files/json_place.h"
#include "files/json_text.h"
#include "files/posix_file.h"
#include "memory/base/error.h"

namespace spillway {
namespace {

constexpr Bytes kLargestFile = 64 * kMiB;
constexpr const char* kElse = "Go on from an earlier checkpoint: move this one's directory out of the run's checkpoints.";

}  // namespace

std::string state_sums_file(const std::string& state_file) { return state_file + ".xxh3"; }

void write_state_sums(const std::string& state_file, const StateSums& sums) {
  nlohmann::ordered_json json;
  for (const auto& [array, sum] : sums) json[array] = fmt::format("{:016x}", sum);
  write_text_file(state_sums_file(state_file), json_text(json));
}

StateSums read_state_sums(const std::string& state_file) {
  const std::string path = state_sums_file(state_file);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw IoError(fmt::format("{} is missing: nothing says whether {} is as it was written", path, state_file), kElse);
  }
  const auto json = parsed_json(read_text_file(path, kLargestFile));
  const JsonPlace place(json, path, kElse, FileOf::program);
  StateSums sums;
  for (const std::string& array : place.keys()) sums[array] = place.at(array).hash();
  return sums;
}

void SummedWriter::append(const std::string& name, std::span<const std::byte> data) {
  if (name != current_) close();
  current_ = name;
  writer_.append(name, data);
  hasher_.add(data);
}

StateSums SummedWriter::finish() {
  close();
  writer_.finish();
  return std::move(sums_);
}

void SummedWriter::close() {
  if (!current_.empty()) sums_[current_] = hasher_.take();
}

void check_state_sum(const StateSums& sums, const std::string& state_file, std::string_view array, std::uint64_t found) {
  const auto sum = sums.find(array);
  if (sum != sums.end() && sum->second == found) return;
  throw IoError(
      fmt::format("{}: {} is damaged: it has checksum {:016x} and {}", state_file, array, found,
                  sum == sums.end() ? "none is in the file of checksums" : fmt::format("was written with {:016x}", sum->second)),
      kElse);
}

void check_state_array(const StateSums& sums, const std::string& state_file, const PosixFile& file, const StoredTensor& array) {
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min<Bytes>(4 * kMiB, array.bytes)));
  ContentHasher hasher;
  for (Bytes at = 0; at < array.bytes; at += std::ssize(piece)) {
    const std::span<std::byte> part =
        std::span(piece).first(static_cast<std::size_t>(std::min<Bytes>(std::ssize(piece), array.bytes - at)));
    file.read(array.offset + at, part);
    hasher.add(part);
  }
  check_state_sum(sums, state_file, array.name, hasher.take());
}

Bytes check_state_file(const std::string& state_file) {
  const StateSums sums = read_state_sums(state_file);
  const SafetensorsReader reader(state_file);
  const PosixFile file = PosixFile::open_to_read(state_file);
  Bytes total = 0;
  for (const StoredTensor& array : reader.tensors()) {
    check_state_array(sums, state_file, file, array);
    total += array.bytes;
  }
  for (const auto& [array, sum] : sums) {
    if (reader.find(array) == nullptr)
      throw IoError(fmt::format("{}: {} is missing, which has checksum {:016x}", state_file, array, sum), kElse);
  }
  return total;
}

}  // namespace spillway
