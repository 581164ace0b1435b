#include "files/safetensors_writer.h"

#include <fmt/ranges.h>

#include <unistd.h>

#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "files/json_text.h"
#include "files/safetensors_header.h"
#include "memory/base/error.h"

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
  header["__metadata__"] = {{"format", "pt"}};  // Hugging Face's loader looks for this
  Bytes offset = 0;
  std::string text = header.dump();
  text.pop_back();
  for (const TensorToWrite& tensor : tensors) {
    const Bytes end = offset + bytes_of(tensor);
    const nlohmann::ordered_json entry = {
        {"dtype", name_of(tensor.type)}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    text += "," + quoted_json(tensor.name) + ":" + entry.dump();
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

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& file, std::vector<TensorToWrite> tensors)
    : final_path_(file), tensors_(std::move(tensors)) {
  check_names(tensors_);
  const std::string header = header_of(tensors_);
  refuse_to_replace(final_path_);
  file_ = PosixFile::create(final_path_.string() + ".partial");
  try {
    const std::uint64_t length = header.size();
    put(std::as_bytes(std::span(&length, 1)));
    put(std::as_bytes(std::span(header)));
  } catch (...) {
    ::unlink(file_.path().c_str());
    throw;
  }
  skip_complete();
}

SafetensorsWriter::~SafetensorsWriter() {
  if (!finished_) ::unlink(file_.path().c_str());
}

void SafetensorsWriter::put(std::span<const std::byte> data) {
  file_.write(position_, data);
  position_ += static_cast<Bytes>(data.size());
}

// Tensors without elements take no bytes.
void SafetensorsWriter::skip_complete() {
  while (!is_complete() && filled_ == bytes_of(tensors_[current_])) {
    ++current_;
    filled_ = 0;
  }
}

void SafetensorsWriter::append(std::string_view name, std::span<const std::byte> data) {
  if (data.empty()) return;
  SPILLWAY_CHECK(!finished_ && !is_complete(), "{} bytes of {} after the last tensor", data.size(), name);
  const TensorToWrite& tensor = tensors_[current_];
  const Bytes size = bytes_of(tensor);
  SPILLWAY_CHECK(tensor.name == name && static_cast<Bytes>(data.size()) <= size - filled_, "{} bytes of {} where {} lacks {}",
                 data.size(), name, tensor.name, size - filled_);
  put(data);
  filled_ += static_cast<Bytes>(data.size());
  skip_complete();
}

void SafetensorsWriter::finish() {
  SPILLWAY_CHECK(!finished_ && is_complete(), "finished with {} of {} tensors written", current_, tensors_.size());
  file_.sync();
  std::error_code error;
  std::filesystem::rename(file_.path(), final_path_, error);
  if (error)
    throw IoError(fmt::format("{}: cannot be renamed to {}: {}", file_.path().string(), final_path_.string(), error.message()));
  finished_ = true;
  sync_directory(final_path_.parent_path());
}

ShardedSafetensorsWriter::ShardedSafetensorsWriter(std::filesystem::path directory, const std::vector<TensorToWrite>& tensors,
                                                   Bytes shard_bytes)
    : directory_(std::move(directory)) {
  check_names(tensors);
  SPILLWAY_CHECK(!tensors.empty() && shard_bytes > 0, "{} tensors in shards of {} bytes", tensors.size(), shard_bytes);
  Bytes in_shard = 0;
  for (const TensorToWrite& tensor : tensors) {
    const Bytes bytes = bytes_of(tensor);
    if (shards_.empty() || (in_shard > 0 && bytes > 0 && in_shard + bytes > shard_bytes)) {
      shards_.emplace_back();
      in_shard = 0;
    }
    shards_.back().push_back(tensor);
    in_shard += bytes;
  }
  advance();
}

ShardedSafetensorsWriter::~ShardedSafetensorsWriter() {
  writer_.reset();
  std::error_code ignored;
  if (finished_) return;
  for (std::size_t shard = 0; shard < written_; ++shard) std::filesystem::remove(directory_ / name_of_shard(shard), ignored);
}

std::string ShardedSafetensorsWriter::name_of_shard(std::size_t shard) const {
  if (shards_.size() == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards_.size());
}

// Closes a shard whose tensors are complete, and opens the next.
void ShardedSafetensorsWriter::advance() {
  while (written_ < shards_.size()) {
    if (writer_ == nullptr)
      writer_ = std::make_unique<SafetensorsWriter>(directory_ / name_of_shard(written_), shards_[written_]);
    if (!writer_->is_complete()) return;
    writer_->finish();
    writer_.reset();
    ++written_;
  }
}

void ShardedSafetensorsWriter::append(std::string_view name, std::span<const std::byte> data) {
  SPILLWAY_CHECK(writer_ != nullptr || data.empty(), "{} bytes of {} after the last tensor", data.size(), name);
  if (data.empty()) return;
  writer_->append(name, data);
  advance();
}

void ShardedSafetensorsWriter::write_index() const {
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  Bytes total = 0;
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
    for (const TensorToWrite& tensor : shards_[shard]) {
      map[tensor.name] = name_of_shard(shard);
      total += bytes_of(tensor);
    }
  }
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(map)}};
  write_text_file(directory_ / "model.safetensors.index.json", json_text(index, 2));
}

void ShardedSafetensorsWriter::finish() {
  SPILLWAY_CHECK(written_ == shards_.size(), "finished with {} of {} shards written", written_, shards_.size());
  // Files that an earlier export left would be read instead of this one, or beside it.
  std::error_code ignored;
  if (shards_.size() > 1) {
    write_index();
    std::filesystem::remove(directory_ / "model.safetensors", ignored);
  } else {
    std::filesystem::remove(directory_ / "model.safetensors.index.json", ignored);
  }
  finished_ = true;
}

}  // namespace spillway
