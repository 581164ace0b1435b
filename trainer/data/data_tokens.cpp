// Token files: text as bytes, llm.c's .bin, raw 16-bit tokens. Little endian, like all machines that Spillway runs on.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "memory/base/error.h"
#include "trainer/data/data_source.h"
#include "trainer/data/token_file.h"
#include "trainer/host/file_blocks.h"

namespace spillway {
namespace {

static_assert(std::endian::native == std::endian::little);

struct Layout {
  std::int64_t first_byte;
  std::int64_t width;   // bytes for each token
  std::int64_t tokens;  // in the file
};

Layout read_header(const PosixFile& file, const std::string& name) {
  const std::string help = "for 16-bit tokens without a header use --data-format u16";
  if (file.size() < kTokenHeaderBytes) {
    throw InputError(
        fmt::format("{}: found {} bytes, allowed: a header of {} bytes, then tokens", name, file.size(), kTokenHeaderBytes),
        help);
  }
  std::array<std::int32_t, 3> header;  // magic, version, tokens
  file.read(0, std::as_writable_bytes(std::span(header)));
  const auto [magic, version, tokens] = header;
  const bool is_known =
      (magic == kTokenMagic16 && version == kTokenVersion16) || (magic == kTokenMagic32 && version == kTokenVersion32);
  if (!is_known) {
    throw InputError(
        fmt::format("{}: found a header with magic {} and version {}, allowed: {} with {} (16-bit tokens), {} with {} (32-bit)",
                    name, magic, version, kTokenMagic16, kTokenVersion16, kTokenMagic32, kTokenVersion32),
        help);
  }
  const Layout layout{kTokenHeaderBytes, magic == kTokenMagic16 ? 2 : 4, tokens};
  if (tokens < 0 || file.size() != kTokenHeaderBytes + tokens * layout.width) {
    throw InputError(fmt::format("{}: the header says {} tokens of {} bytes, so {} bytes in all, found {}", name, tokens,
                                 layout.width, kTokenHeaderBytes + tokens * layout.width, file.size()),
                     "the file was cut short or is damaged: make it again");
  }
  return layout;
}

// Number of bytes of the byte-order mark at the head of a text: the mark says that the text is UTF-8 and is no part of it.
Bytes bytes_of_mark(const PosixFile& file) {
  constexpr std::array<unsigned char, 3> kMark = {0xef, 0xbb, 0xbf};
  std::array<unsigned char, 3> head{};
  if (file.size() < std::ssize(kMark)) return 0;
  file.read(0, std::as_writable_bytes(std::span(head)));
  return head == kMark ? std::ssize(kMark) : 0;
}

Layout layout_of(const PosixFile& file, const std::string& name, TokenFileFormat format) {
  switch (format) {
    case TokenFileFormat::bytes: {
      const Bytes begin = bytes_of_mark(file);
      return {begin, 1, file.size() - begin};
    }
    case TokenFileFormat::llm_c: return read_header(file, name);
    case TokenFileFormat::u32: return {0, 4, file.size() / 4};
    case TokenFileFormat::u16: break;
  }
  if (file.size() % 2 != 0) {
    throw InputError(fmt::format("{}: found {} bytes, allowed with --data-format u16: an even number", name, file.size()));
  }
  return {0, 2, file.size() / 2};
}

std::uint32_t token_at(const std::byte* bytes, std::int64_t width) {
  std::uint32_t token = 0;
  std::memcpy(&token, bytes, static_cast<std::size_t>(width));
  return token;
}

class TokenFile final : public SequenceSource {
 public:
  TokenFile(PosixFile file, std::string name, TokenFileFormat format, SequenceShape shape)
      : file_(std::move(file)),
        name_(std::move(name)),
        layout_(layout_of(file_, name_, format)),
        shape_(shape),
        buffer_(static_cast<std::size_t>((shape.seq_length + 1) * layout_.width)) {
    check_all_tokens();
  }

  std::int64_t sequences() const override { return layout_.tokens == 0 ? 0 : (layout_.tokens - 1) / shape_.seq_length; }
  std::int64_t tokens() const override { return layout_.tokens; }
  std::int64_t counted(std::int64_t) const override { return shape_.seq_length; }
  std::int64_t tokens_left_over() const override {
    return sequences() == 0 ? layout_.tokens : layout_.tokens - 1 - sequences() * shape_.seq_length;
  }

  std::int64_t positions(std::int64_t) const override { return shape_.seq_length; }
  void read(std::int64_t index, const SequenceRows& rows) override {
    const std::int64_t first = index * shape_.seq_length;
    file_.read(layout_.first_byte + first * layout_.width, buffer_);
    std::uint32_t token = checked(first, buffer_.data());
    for (std::int64_t t = 0; t < shape_.seq_length; ++t) {
      rows.tokens[static_cast<std::size_t>(t)] = static_cast<std::int32_t>(token);
      token = checked(first + t + 1, buffer_.data() + (t + 1) * layout_.width);
      rows.targets[static_cast<std::size_t>(t)] = static_cast<std::int32_t>(token);
    }
    std::ranges::fill(rows.documents, 0);
  }

 private:
  // Checks each token again when it is read: a file that changed during the run must not index outside the embedding.
  std::uint32_t checked(std::int64_t position, const std::byte* bytes) const {
    const std::uint32_t token = token_at(bytes, layout_.width);
    if (token >= shape_.vocabulary) [[unlikely]] {
      throw InputError(fmt::format("{}: found token {} at position {} (byte {}), allowed: below {}, the vocabulary of the model",
                                   name_, token, position, layout_.first_byte + position * layout_.width, shape_.vocabulary));
    }
    return token;
  }

  void check_all_tokens() const {
    if (shape_.vocabulary >= std::int64_t{1} << (8 * layout_.width)) return;  // no token of this width can be too large
    for_each_block(file_, layout_.first_byte, layout_.first_byte + layout_.tokens * layout_.width,
                   [this](Bytes offset, std::span<const std::byte> block) {
                     const auto tokens = static_cast<std::int64_t>(block.size()) / layout_.width;
                     const std::int64_t first = (offset - layout_.first_byte) / layout_.width;
                     for (std::int64_t i = 0; i < tokens; ++i) checked(first + i, block.data() + i * layout_.width);
                   });
  }

  PosixFile file_;
  std::string name_;
  Layout layout_;
  SequenceShape shape_;
  std::vector<std::byte> buffer_;  // [T + 1] tokens
};

}  // namespace

std::unique_ptr<SequenceSource> open_token_file(PosixFile file, const std::string& name, TokenFileFormat format,
                                                SequenceShape shape) {
  return std::make_unique<TokenFile>(std::move(file), name, format, shape);
}

}  // namespace spillway
