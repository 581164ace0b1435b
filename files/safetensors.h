// Reads safetensors: one file, or a directory with model.safetensors or model.safetensors.index.json and its shards.
// Everything in a header is checked before a byte of data is believed; data is read by pread into the caller's memory.
// Not here: writing (safetensors_writer.h), and what the tensors mean (each family's own file).
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "files/posix_file.h"
#include "memory/base/types.h"

namespace spillway {

// The element types of the format. Weights are read from f32, bf16 and f16, tokens from i32; of the others only the size is
// known.
enum class ElementType : std::uint8_t {
  f32,
  bf16,
  f16,
  f64,
  i8,
  i16,
  i32,
  i64,
  u8,
  u16,
  u32,
  u64,
  boolean,
  f8_e4m3,
  f8_e5m2,
  f8_e8m0,
  c64
};
Bytes size_of(ElementType type);
std::string_view name_of(ElementType type);  // as in the header: "F32", "BF16", …
ElementType element_type_of(DType dtype);

struct StoredTensor {
  std::string name;
  ElementType type = ElementType::f32;
  std::vector<std::int64_t> shape;
  std::int64_t elements = 0;  // product of shape; 1 for a scalar
  int file = 0;               // index into files()
  Bytes offset = 0;           // of the first byte, from the start of that file
  Bytes bytes = 0;
};

// Immutable once open: all methods may be called from several threads at once.
class SafetensorsReader {
 public:
  // Throws InputError if the header or the index is wrong (file, tensor, what was found, what to do), and IoError if it cannot be
  // read.
  explicit SafetensorsReader(const std::filesystem::path& file_or_directory);

  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // file after file, each in the order of its offsets
  const std::vector<std::filesystem::path>& files() const { return paths_; }

  const StoredTensor* find(std::string_view name) const;  // nullptr if there is none
  // Throws InputError if the tensor is missing or has another shape than the model asks for.
  const StoredTensor& require(std::string_view name, std::span<const std::int64_t> shape) const;

  // Reads elements [first, first + out.size()) of a tensor of f32, bf16 or f16 as fp32. Throws InputError, naming the tensor and
  // the element, for a value that is not finite.
  void read(const StoredTensor& tensor, std::int64_t first, std::span<float> out) const;

 private:
  void open_file(const std::filesystem::path& path);
  void open_index(const std::filesystem::path& index);
  void index_names();
  const PosixFile& handle_of(const StoredTensor& tensor) const { return handles_[static_cast<std::size_t>(tensor.file)]; }
  std::string file_of(const StoredTensor& tensor) const { return handle_of(tensor).path().string(); }
  static void check_range(const StoredTensor& tensor, std::int64_t first, std::size_t count);

  std::vector<PosixFile> handles_;
  std::vector<std::filesystem::path> paths_;
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> by_name_;  // views into tensors_
  std::filesystem::path opened_;                               // the path that the user named
};

}  // namespace spillway
