#include "trainer/show/tensorboard.h"

#include <fmt/core.h>

#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

#include "memory/base/error.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

// TensorBoard takes every file with "tfevents" in its name. A fixed name lets a run that goes on find its file again.
constexpr const char* kFileName = "events.out.tfevents.spillway";
constexpr std::uint64_t kLargestRecord = 64 << 20;

constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
    table[byte] = crc;
  }
  return table;
}

// These files mask checksums, because the data may itself contain checksums.
std::uint32_t masked_crc(std::string_view data) { return std::rotr(crc32c(data), 15) + 0xa282ead8u; }

template <typename T>
std::string bytes_of(T value) {
  static_assert(std::endian::native == std::endian::little);
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

// --- protocol buffers ---------------------------------------------------------------------------------------------------------

enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, length = 2, fixed32 = 5 };

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
std::string key(int field, Wire wire) {
  return varint(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire));
}
std::string message(int field, std::string_view bytes) {
  return key(field, Wire::length) + varint(bytes.size()) + std::string(bytes);
}

// Event: wall_time = 1, step = 2, file_version = 3, summary = 5.
std::string event(std::int64_t step, std::string_view content) {
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return key(1, Wire::fixed64) + bytes_of(now) + key(2, Wire::varint) + varint(static_cast<std::uint64_t>(step)) +
         std::string(content);
}

// Summary.Value: tag = 1, simple_value = 2. Summary: value = 1.
std::string scalar(std::string_view tag, double value) {
  return message(1, message(1, tag) + key(2, Wire::fixed32) + bytes_of(static_cast<float>(value)));
}

// Summary.Value: tensor = 8, metadata = 9. TensorProto: dtype = 1 (7 is string), tensor_shape = 2, string_val = 8.
// TensorShapeProto: dim = 2, of size = 1. SummaryMetadata: plugin_data = 1, of plugin_name = 1.
std::string text_value(std::string_view tag, std::string_view text) {
  const std::string shape = message(2, key(1, Wire::varint) + varint(1));
  const std::string tensor = key(1, Wire::varint) + varint(7) + message(2, shape) + message(8, text);
  return message(1, message(1, tag) + message(8, tensor) + message(9, message(1, message(1, "text"))));
}

// The step of an event; nothing if the bytes are not an event.
std::optional<std::int64_t> step_of(std::string_view bytes) {
  const auto take_varint = [&]() -> std::optional<std::uint64_t> {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes.front());
      bytes.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  };
  std::int64_t step = 0;
  while (!bytes.empty()) {
    const auto header = take_varint();
    if (!header) return std::nullopt;
    std::size_t skip = 0;
    switch (static_cast<Wire>(*header & 7)) {
      case Wire::varint: {
        const auto value = take_varint();
        if (!value) return std::nullopt;
        if (*header >> 3 == 2) step = static_cast<std::int64_t>(*value);
        break;
      }
      case Wire::fixed64: skip = 8; break;
      case Wire::fixed32: skip = 4; break;
      case Wire::length: {
        const auto length = take_varint();
        if (!length || *length > bytes.size()) return std::nullopt;
        skip = static_cast<std::size_t>(*length);
        break;
      }
      default: return std::nullopt;
    }
    if (skip > bytes.size()) return std::nullopt;
    bytes.remove_prefix(skip);
  }
  return step;
}

// --- records ------------------------------------------------------------------------------------------------------------------

std::string record_of(std::string_view data) {
  const std::string length = bytes_of(static_cast<std::uint64_t>(data.size()));
  return length + bytes_of(masked_crc(length)) + std::string(data) + bytes_of(masked_crc(data));
}

// Bytes of the whole records up to `last_step`.
Bytes whole_records(const std::string& path, std::int64_t last_step) {
  std::ifstream file(path, std::ios::binary);
  Bytes kept = 0;
  std::string data;
  while (true) {
    std::array<char, 12> header;
    std::array<char, 4> crc;
    if (!file.read(header.data(), header.size())) return kept;
    std::uint64_t length = 0;
    std::memcpy(&length, header.data(), sizeof length);
    const std::string_view length_bytes(header.data(), sizeof length);
    if (bytes_of(masked_crc(length_bytes)) != std::string_view(header.data() + sizeof length, 4) || length > kLargestRecord)
      return kept;
    data.resize(static_cast<std::size_t>(length));
    if (!file.read(data.data(), static_cast<std::streamsize>(length)) || !file.read(crc.data(), crc.size())) return kept;
    const auto step = step_of(data);
    if (bytes_of(masked_crc(data)) != std::string_view(crc.data(), crc.size()) || !step || *step > last_step) return kept;
    kept += static_cast<Bytes>(header.size() + length + crc.size());
  }
}

AppendFile opened(const std::string& directory, std::int64_t last_step) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw IoError(fmt::format("--tensorboard: making {} failed: {}", directory, error.message()));
  const std::string path = (fs::path(directory) / kFileName).string();
  const bool is_there = fs::exists(path, error);
  const Bytes kept = is_there ? whole_records(path, last_step) : 0;
  // A file without steps was left by a run that could not begin.
  if (is_there && last_step == 0 && static_cast<std::uintmax_t>(kept) != fs::file_size(path, error)) {
    throw InputError(fmt::format("--tensorboard: found {}, allowed: a directory without a curve of ours", path),
                     "it is another run's curve");
  }
  AppendFile file(path, kept);
  if (kept == 0) file.append(record_of(event(0, message(3, "brain.Event:2"))));
  return file;
}

}  // namespace

std::uint32_t crc32c(std::string_view data) {
  static constexpr std::array<std::uint32_t, 256> table = crc_table();
  std::uint32_t crc = ~0u;
  for (const char byte : data) crc = table[(crc ^ static_cast<unsigned char>(byte)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

TensorboardLog::TensorboardLog(const std::string& directory, std::int64_t last_step) : file_(opened(directory, last_step)) {}

void TensorboardLog::append(const StepRecord& record) {
  std::string values = scalar("loss", record.loss) + scalar("grad_norm", record.grad_norm) + scalar("lr", record.lr) +
                       scalar("tokens_per_s", record.tokens_per_s);
  const std::pair<std::string_view, const std::optional<double>&> sometimes[] = {{"eval_loss", record.eval_loss},
                                                                                 {"lm_loss", record.lm_loss},
                                                                                 {"aux_loss", record.aux_loss},
                                                                                 {"router_z_loss", record.router_z_loss},
                                                                                 {"expert_load_most", record.expert_load_most},
                                                                                 {"expert_load_least", record.expert_load_least},
                                                                                 {"expert_entropy", record.expert_entropy}};
  for (const auto& [name, value] : sometimes) {
    if (value) values += scalar(name, *value);
  }
  if (record.sample) values += text_value("sample", *record.sample);
  file_.append(record_of(event(record.step, message(5, values))));
}

}  // namespace spillway
