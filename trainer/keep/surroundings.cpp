#include "trainer/keep/surroundings.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "files/posix_file.h"
#include "memory/base/error.h"

namespace spillway {
namespace {

constexpr Bytes kPart = 8 * kMiB;

SafetensorsReader reader_of(const std::string& model, const ModelConfig& config) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (!fs::exists(fs::path(model) / "model.safetensors", ignored) &&
      !fs::exists(fs::path(model) / "model.safetensors.index.json", ignored)) {
    throw InputError(
        fmt::format("--model: found {}, which has no weights, allowed: the {} checkpoint whose text half the run trains", model,
                    config.wrapper),
        "The export has its other tensors, too: --model PATH says where it is now.");
  }
  return SafetensorsReader(model);
}

}  // namespace

Surroundings::Surroundings(const std::string& model, const ModelConfig& config, const UnitGraph& graph)
    : reader_(reader_of(model, config)) {
  check_weights(reader_, config, graph);
  others_ = tensors_beside(reader_, config, graph);
}

Bytes Surroundings::bytes() const {
  Bytes sum = 0;
  for (const StoredTensor* tensor : others_) sum += tensor->bytes;
  return sum;
}

void Surroundings::complete(std::vector<TensorToWrite>& tensors) const {
  for (TensorToWrite& tensor : tensors) tensor.name = name_in_file(reader_, tensor.name);
  for (const StoredTensor* tensor : others_) tensors.push_back({tensor->name, tensor->type, tensor->shape});
}

TensorSink Surroundings::renamed(const TensorSink& sink) const {
  return [this, &sink](std::string_view tensor, std::span<const std::byte> data) {
    sink(name_in_file(reader_, std::string(tensor)), data);
  };
}

void Surroundings::copy(const TensorSink& sink) const {
  std::vector<std::byte> part;
  for (const StoredTensor* tensor : others_) {
    const PosixFile file = PosixFile::open_to_read(reader_.files()[static_cast<std::size_t>(tensor->file)]);
    for (Bytes at = 0; at < tensor->bytes; at += kPart) {
      part.resize(static_cast<std::size_t>(std::min(kPart, tensor->bytes - at)));
      file.read(tensor->offset + at, part);
      sink(tensor->name, part);
    }
  }
}

}  // namespace spillway
