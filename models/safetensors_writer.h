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

#include "models/safetensors.h"

namespace spillway {

struct TensorToWrite {
  std::string name;
  ElementType type = ElementType::f32;
  std::vector<std::int64_t> shape;
};

// One file.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& file, const std::vector<TensorToWrite>& tensors);
  ~SafetensorsWriter();
  SafetensorsWriter(SafetensorsWriter&&) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) noexcept;

  // The next bytes of `name`, which must be the tensor that the order of declaration is at. IoError: disk full, say.
  void append(std::string_view name, std::span<const std::byte> data);
  // All tensors must be complete. When it returns the file is on the disk under its name.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A Hugging Face directory's weights: model.safetensors, or shards of at most `shard_bytes` with an index.
class ShardedSafetensorsWriter {
 public:
  ShardedSafetensorsWriter(const std::filesystem::path& directory, const std::vector<TensorToWrite>& tensors,
                           Bytes shard_bytes = 5'000'000'000);
  ~ShardedSafetensorsWriter();

  void append(std::string_view name, std::span<const std::byte> data);
  // The index is written last: a directory with an index has all its shards.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway
