// Reads safetensors: one file, or a directory with model.safetensors or model.safetensors.index.json and its shards.
// Everything in a header is checked before a byte of data is believed; data is read by pread into the caller's memory.
// Not here: writing (safetensors_writer.h), and what the tensors mean (each family's own file).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "memory/bfloat16.h"
#include "memory/types.h"

namespace spillway {

// The element types of the format. Weights are read from f32, bf16 and f16, tokens from i32; the rest is known by size alone.
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

enum class NotFinite : std::uint8_t { refuse, accept };

// Immutable once open: all methods may be called from several threads at once.
class SafetensorsReader {
 public:
  // InputError: what the header or the index says is wrong (file, tensor, what was found, what to do). IoError: it cannot be
  // read.
  explicit SafetensorsReader(const std::filesystem::path& file_or_directory);
  ~SafetensorsReader();
  SafetensorsReader(SafetensorsReader&&) noexcept;
  SafetensorsReader& operator=(SafetensorsReader&&) noexcept;

  const std::vector<StoredTensor>& tensors() const;  // file after file, each in the order of its offsets
  const std::vector<std::filesystem::path>& files() const;

  const StoredTensor* find(std::string_view name) const;  // nullptr where there is none
  // InputError where the tensor is missing or has another shape than the model asks for.
  const StoredTensor& require(std::string_view name, std::span<const std::int64_t> shape) const;

  // Elements [first, first + out.size()) of a tensor of f32, bf16 or f16, converted to fp32, or to bf16 bits (nearest, ties to
  // even). A value that is not finite, or becomes so, is an InputError naming the tensor and the element, unless accepted.
  void read(const StoredTensor& tensor, std::int64_t first, std::span<float> out, NotFinite not_finite = NotFinite::refuse) const;
  void read(const StoredTensor& tensor, std::int64_t first, std::span<BFloat16> out,
            NotFinite not_finite = NotFinite::refuse) const;
  void read_int32(const StoredTensor& tensor, std::int64_t first, std::span<std::int32_t> out) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway
