// Writes safetensors in bounded memory: names, types and shapes first, then the data in that order, in pieces of any size.
// A file appears under its name only when it is whole and on the disk; an error or a destructor leaves nothing behind.
// Not here: reading (safetensors.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/posix_file.h"
#include "files/safetensors.h"

namespace spillway {

struct TensorToWrite {
  std::string name;
  ElementType type = ElementType::f32;
  std::vector<std::int64_t> shape;
};

// One file.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& file, std::vector<TensorToWrite> tensors);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // Appends the next bytes of `name`, which must be the tensor that is due in the order of declaration. Throws IoError, for one
  // if the disk is full.
  void append(std::string_view name, std::span<const std::byte> data);
  bool is_complete() const { return current_ == tensors_.size(); }
  // All tensors must be complete. On return the file is on the disk under its name.
  void finish();

 private:
  void put(std::span<const std::byte> data);
  void skip_complete();

  std::filesystem::path final_path_;  // the file has another name until it is whole
  std::vector<TensorToWrite> tensors_;
  PosixFile file_;
  std::size_t current_ = 0;  // tensor that takes the next bytes
  Bytes filled_ = 0;         // bytes of it that are written
  Bytes position_ = 0;       // in the file
  bool finished_ = false;
};

// A Hugging Face directory's weights: model.safetensors, or shards of at most `shard_bytes` with an index.
class ShardedSafetensorsWriter {
 public:
  ShardedSafetensorsWriter(std::filesystem::path directory, const std::vector<TensorToWrite>& tensors,
                           Bytes shard_bytes = 5'000'000'000);
  ~ShardedSafetensorsWriter();
  ShardedSafetensorsWriter(const ShardedSafetensorsWriter&) = delete;
  ShardedSafetensorsWriter& operator=(const ShardedSafetensorsWriter&) = delete;

  void append(std::string_view name, std::span<const std::byte> data);
  // The index is written last: a directory with an index has all its shards.
  void finish();

 private:
  std::string name_of_shard(std::size_t shard) const;
  void advance();
  void write_index() const;

  std::filesystem::path directory_;
  std::vector<std::vector<TensorToWrite>> shards_;
  std::size_t written_ = 0;                    // shards
  std::unique_ptr<SafetensorsWriter> writer_;  // of the shard behind the written ones
  bool finished_ = false;
};

}  // namespace spillway
