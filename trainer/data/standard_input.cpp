#include "trainer/data/standard_input.h"

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "memory/base/error.h"
#include "trainer/data/byte_stream.h"
#include "trainer/data/compressed_stream.h"
#include "trainer/data/token_file.h"
#include "trainer/host/interrupt.h"

namespace spillway {
namespace {

Compression compression_in(std::string_view head) {
  if (head.starts_with("\x1f\x8b")) return Compression::gzip;
  return head.starts_with("\x28\xb5\x2f\xfd") ? Compression::zstd : Compression::none;
}

DataKind kind_in(std::string_view head) {
  std::int32_t magic = 0;
  if (head.size() >= sizeof magic) std::memcpy(&magic, head.data(), sizeof magic);
  if (magic == kTokenMagic16 || magic == kTokenMagic32) return DataKind::tokens;
  if (head.starts_with("\xef\xbb\xbf")) head.remove_prefix(3);
  const std::size_t first = head.find_first_not_of(" \t\r\n");
  if (first == head.npos) return DataKind::text;
  return head[first] == '{' ? DataKind::rows : head[first] == '[' ? DataKind::array : DataKind::text;
}

}  // namespace

const StandardInput& StandardInput::get() {
  static const StandardInput input;
  return input;
}

StandardInput::StandardInput() : file_("standard input is kept in a temporary file while it is needed") {
  if (::isatty(STDIN_FILENO) != 0)
    throw InputError("standard input (-): found a terminal, allowed: a pipe or a file",
                     "as in: zcat rows.jsonl.gz | spillway ...");
  std::vector<std::byte> block(1 << 20);
  for (;;) {
    InterruptHandler::stop_where_requested("standard input was not read to its end");
    const ssize_t count = ::read(STDIN_FILENO, block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw IoError(fmt::format("standard input: reading failed: {}", std::strerror(errno)));
    if (count == 0) break;
    file_.write(std::span(block).first(static_cast<std::size_t>(count)));
  }
  if (file_.size() == 0) throw InputError("standard input (-): found nothing, allowed: text, rows or tokens");
  std::array<char, 4096> head;
  const auto head_of = [&](Compression compression) {
    const auto bytes = decompressed(bytes_of(file_.open()), compression, "standard input");
    return std::string_view(head.data(), read_fully(*bytes, head));
  };
  name_.compression = compression_in(head_of(Compression::none));
  name_.kind = kind_in(head_of(name_.compression));
}

std::string StandardInput::endings() const {
  const auto kind = [&] {
    switch (name_.kind) {
      case DataKind::rows: return ".jsonl";
      case DataKind::array: return ".json";
      case DataKind::tokens: return ".bin";
      case DataKind::text:
      case DataKind::other: break;
    }
    return ".txt";
  };
  return fmt::format("{}{}", kind(),
                     name_.compression == Compression::gzip   ? ".gz"
                     : name_.compression == Compression::zstd ? ".zst"
                                                              : "");
}

}  // namespace spillway
