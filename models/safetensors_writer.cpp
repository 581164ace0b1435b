#include "models/safetensors_writer.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "memory/error.h"
#include "models/posix_file.h"
#include "models/safetensors_header.h"

namespace spillway {
namespace {

// Data begins at a multiple of this, so that readers that map the file find every element aligned.
constexpr Bytes kDataAlignment = 64;

Bytes bytes_of(const TensorToWrite& tensor) {
  Bytes bytes = size_of(tensor.type);
  for (const std::int64_t dimension : tensor.shape) {
    SPILLWAY_CHECK(dimension >= 0 && !__builtin_mul_overflow(bytes, dimension, &bytes), "tensor {} of shape [{}]", tensor.name,
                   fmt::join(tensor.shape, ", "));
  }
  return bytes;
}

std::string header_of(const std::vector<TensorToWrite>& tensors) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};  // what Hugging Face's loader looks for
  Bytes offset = 0;
  std::string text = header.dump();
  text.pop_back();
  for (const TensorToWrite& tensor : tensors) {
    const Bytes end = offset + bytes_of(tensor);
    const nlohmann::ordered_json entry = {
        {"dtype", name_of(tensor.type)}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    text += "," + nlohmann::json(tensor.name).dump() + ":" + entry.dump();
    offset = end;
  }
  text += "}";
  const auto length = static_cast<Bytes>(text.size());
  text.append(static_cast<std::size_t>(round_up(8 + length, kDataAlignment) - 8 - length), ' ');
  SPILLWAY_CHECK(static_cast<Bytes>(text.size()) <= kMaxSafetensorsHeader, "a header of {} bytes", text.size());
  return text;
}

void check_names(const std::vector<TensorToWrite>& tensors) {
  std::set<std::string_view> names;
  for (const TensorToWrite& tensor : tensors) {
    SPILLWAY_CHECK(tensor.name != "__metadata__" && names.insert(tensor.name).second, "tensor {} is declared twice", tensor.name);
  }
}

}  // namespace

struct SafetensorsWriter::Impl {
  std::filesystem::path final_path;
  std::filesystem::path partial_path;
  std::vector<TensorToWrite> tensors;
  PosixFile file;
  std::size_t current = 0;  // tensor that takes the next bytes
  Bytes filled = 0;         // of it
  Bytes position = 0;       // in the file
  bool finished = false;

  Impl(const std::filesystem::path& path, const std::vector<TensorToWrite>& to_write) : final_path(path), tensors(to_write) {
    check_names(tensors);
    const std::string header = header_of(tensors);
    refuse_to_replace(path);
    partial_path = path;
    partial_path += ".partial";
    file = PosixFile::create(partial_path);
    try {
      const std::uint64_t length = header.size();
      put(std::as_bytes(std::span(&length, 1)));
      put(std::as_bytes(std::span(header)));
    } catch (...) {
      ::unlink(partial_path.c_str());
      throw;
    }
    skip_complete();
  }

  ~Impl() {
    if (!finished) ::unlink(partial_path.c_str());
  }

  void put(std::span<const std::byte> data) {
    file.write(position, data);
    position += static_cast<Bytes>(data.size());
  }

  // Tensors without elements want no bytes.
  void skip_complete() {
    while (current < tensors.size() && filled == bytes_of(tensors[current])) {
      ++current;
      filled = 0;
    }
  }
};

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& file, const std::vector<TensorToWrite>& tensors)
    : impl_(std::make_unique<Impl>(file, tensors)) {}
SafetensorsWriter::~SafetensorsWriter() = default;
SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&&) noexcept = default;
SafetensorsWriter& SafetensorsWriter::operator=(SafetensorsWriter&&) noexcept = default;

void SafetensorsWriter::append(std::string_view name, std::span<const std::byte> data) {
  Impl& impl = *impl_;
  if (data.empty()) return;
  SPILLWAY_CHECK(!impl.finished && impl.current < impl.tensors.size(), "{} bytes of {} after the last tensor", data.size(), name);
  const TensorToWrite& tensor = impl.tensors[impl.current];
  const Bytes size = bytes_of(tensor);
  SPILLWAY_CHECK(tensor.name == name && static_cast<Bytes>(data.size()) <= size - impl.filled, "{} bytes of {} where {} lacks {}",
                 data.size(), name, tensor.name, size - impl.filled);
  impl.put(data);
  impl.filled += static_cast<Bytes>(data.size());
  impl.skip_complete();
}

void SafetensorsWriter::finish() {
  Impl& impl = *impl_;
  SPILLWAY_CHECK(!impl.finished && impl.current == impl.tensors.size(), "finished with {} of {} tensors written", impl.current,
                 impl.tensors.size());
  impl.file.sync();
  std::error_code error;
  std::filesystem::rename(impl.partial_path, impl.final_path, error);
  if (error)
    throw IoError(
        fmt::format("{}: cannot be renamed to {}: {}", impl.partial_path.string(), impl.final_path.string(), error.message()));
  impl.finished = true;
  sync_directory(impl.final_path.parent_path());
}

struct ShardedSafetensorsWriter::Impl {
  std::filesystem::path directory;
  std::vector<TensorToWrite> tensors;
  std::vector<std::size_t> shard_begins;  // index of each shard's first tensor
  std::vector<std::filesystem::path> written;
  std::unique_ptr<SafetensorsWriter> writer;
  std::size_t shard = 0;    // being written
  std::size_t current = 0;  // tensor that takes the next bytes
  Bytes filled = 0;         // of it
  bool finished = false;

  std::string shard_name(std::size_t index) const {
    if (shard_begins.size() == 1) return "model.safetensors";
    return fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, shard_begins.size());
  }
  std::size_t shard_end(std::size_t index) const {
    return index + 1 < shard_begins.size() ? shard_begins[index + 1] : tensors.size();
  }

  void open_shard() {
    const auto begin = tensors.begin() + static_cast<std::ptrdiff_t>(shard_begins[shard]);
    const auto end = tensors.begin() + static_cast<std::ptrdiff_t>(shard_end(shard));
    writer = std::make_unique<SafetensorsWriter>(directory / shard_name(shard), std::vector<TensorToWrite>(begin, end));
  }

  // Closes each shard whose tensors are complete, and opens the next.
  void advance() {
    while (current < tensors.size() && filled == bytes_of(tensors[current])) {
      ++current;
      filled = 0;
      if (current == shard_end(shard)) close_shard();
    }
  }

  void close_shard() {
    writer->finish();
    writer.reset();
    written.push_back(directory / shard_name(shard));
    if (++shard < shard_begins.size()) open_shard();
  }

  void write_index() const {
    nlohmann::ordered_json index;
    nlohmann::ordered_json map = nlohmann::ordered_json::object();
    Bytes total = 0;
    for (std::size_t s = 0; s < shard_begins.size(); ++s) {
      for (std::size_t i = shard_begins[s]; i < shard_end(s); ++i) {
        map[tensors[i].name] = shard_name(s);
        total += bytes_of(tensors[i]);
      }
    }
    index["metadata"] = {{"total_size", total}};
    index["weight_map"] = std::move(map);
    write_text_file(directory / "model.safetensors.index.json", index.dump(2) + "\n");
  }

  ~Impl() {
    writer.reset();
    std::error_code ignored;
    if (!finished) {
      for (const std::filesystem::path& file : written) std::filesystem::remove(file, ignored);
    }
  }
};

ShardedSafetensorsWriter::ShardedSafetensorsWriter(const std::filesystem::path& directory,
                                                   const std::vector<TensorToWrite>& tensors, Bytes shard_bytes)
    : impl_(std::make_unique<Impl>()) {
  check_names(tensors);
  SPILLWAY_CHECK(!tensors.empty() && shard_bytes > 0, "{} tensors in shards of {} bytes", tensors.size(), shard_bytes);
  impl_->directory = directory;
  impl_->tensors = tensors;
  Bytes in_shard = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Bytes bytes = bytes_of(tensors[i]);
    if (i == 0 || (in_shard > 0 && bytes > 0 && in_shard + bytes > shard_bytes)) {
      impl_->shard_begins.push_back(i);
      in_shard = 0;
    }
    in_shard += bytes;
  }
  impl_->open_shard();
  impl_->advance();
}

ShardedSafetensorsWriter::~ShardedSafetensorsWriter() = default;

void ShardedSafetensorsWriter::append(std::string_view name, std::span<const std::byte> data) {
  SPILLWAY_CHECK(impl_->writer != nullptr || data.empty(), "{} bytes of {} after the last tensor", data.size(), name);
  if (data.empty()) return;
  impl_->writer->append(name, data);
  impl_->filled += static_cast<Bytes>(data.size());
  impl_->advance();
}

void ShardedSafetensorsWriter::finish() {
  SPILLWAY_CHECK(impl_->current == impl_->tensors.size(), "finished with {} of {} tensors written", impl_->current,
                 impl_->tensors.size());
  // What an earlier export left would be read instead of this one, or beside it.
  std::error_code ignored;
  if (impl_->shard_begins.size() > 1) {
    impl_->write_index();
    std::filesystem::remove(impl_->directory / "model.safetensors", ignored);
  } else {
    std::filesystem::remove(impl_->directory / "model.safetensors.index.json", ignored);
  }
  impl_->finished = true;
}

}  // namespace spillway
