#include "trainer/data/token_file.h"

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <limits>
#include <system_error>
#include <utility>

#include "memory/base/error.h"

namespace spillway {
namespace {

void to_width(std::span<const std::int32_t> tokens, TokenWidth width, std::vector<std::byte>& bytes) {
  const auto size = static_cast<std::size_t>(width);
  bytes.resize(tokens.size() * size);
  for (std::size_t i = 0; i < tokens.size(); ++i) std::memcpy(bytes.data() + i * size, &tokens[i], size);  // little endian
}

}  // namespace

TokenWidth token_width_for(std::int64_t vocabulary) { return vocabulary <= (1 << 16) ? TokenWidth::u16 : TokenWidth::u32; }

TokenFileWriter::TokenFileWriter(std::filesystem::path path, TokenWidth width)
    : path_(std::move(path)),
      partial_(path_.string() + fmt::format(".partial.{}", ::getpid())),
      file_(PosixFile::create((refuse_to_replace(path_), partial_))),
      width_(width) {}

TokenFileWriter::~TokenFileWriter() {
  std::error_code ignored;
  if (!is_finished_) std::filesystem::remove(partial_, ignored);
}

void TokenFileWriter::write(std::span<const std::int32_t> tokens) {
  if (tokens_ + static_cast<std::int64_t>(tokens.size()) > std::numeric_limits<std::int32_t>::max()) {
    throw InputError(fmt::format("{}: more than {} tokens, allowed: what the header's 32 bits count", path_.string(),
                                 std::numeric_limits<std::int32_t>::max()),
                     "make several files of parts of the text; --data takes them all");
  }
  to_width(tokens, width_, buffer_);
  file_.write(kTokenHeaderBytes + tokens_ * static_cast<std::int64_t>(width_), buffer_);
  tokens_ += static_cast<std::int64_t>(tokens.size());
}

void TokenFileWriter::finish() {
  std::array<std::int32_t, kTokenHeaderBytes / 4> header = {};
  header[0] = width_ == TokenWidth::u16 ? kTokenMagic16 : kTokenMagic32;
  header[1] = width_ == TokenWidth::u16 ? kTokenVersion16 : kTokenVersion32;
  header[2] = static_cast<std::int32_t>(tokens_);
  file_.write(0, std::as_bytes(std::span(header)));
  file_.sync();
  std::error_code error;
  std::filesystem::rename(partial_, path_, error);
  if (error) throw IoError(fmt::format("{}: cannot be renamed to {}: {}", partial_.string(), path_.string(), error.message()));
  is_finished_ = true;
  sync_directory(path_.has_parent_path() ? path_.parent_path() : ".");
}

HiddenTokenFile::HiddenTokenFile(TokenWidth width) : width_(width), file_("text is tokenized into a temporary file") {}

void HiddenTokenFile::write(std::span<const std::int32_t> tokens) {
  to_width(tokens, width_, buffer_);
  file_.write(buffer_);
}

PosixFile HiddenTokenFile::take() { return file_.open(); }

}  // namespace spillway
