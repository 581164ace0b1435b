// Token files: the header of llm.c's .bin, and a writer that leaves a whole file or none.
// Not here: reading (data_source.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "files/posix_file.h"
#include "trainer/data/hidden_file.h"

namespace spillway {

// A header of 256 int32 (the first three are magic, version and number of tokens), then the tokens.
inline constexpr std::int64_t kTokenHeaderBytes = 256 * 4;
inline constexpr std::int32_t kTokenMagic16 = 20240520;  // GPT-2 tokens in llm.c
inline constexpr std::int32_t kTokenVersion16 = 1;
inline constexpr std::int32_t kTokenMagic32 = 20240801;  // Llama 3 tokens in llm.c
inline constexpr std::int32_t kTokenVersion32 = 7;

enum class TokenWidth : std::uint8_t { u16 = 2, u32 = 4 };  // bytes
TokenWidth token_width_for(std::int64_t vocabulary);

class TokenFileWriter {
 public:
  // Writes beside `path`, under another name, until finish.
  TokenFileWriter(std::filesystem::path path, TokenWidth width);
  ~TokenFileWriter();  // without finish: leaves no file
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;

  void write(std::span<const std::int32_t> tokens);
  void finish();  // writes the header, then renames; durable on return
  std::int64_t tokens() const { return tokens_; }

 private:
  std::filesystem::path path_;
  std::filesystem::path partial_;
  PosixFile file_;
  TokenWidth width_;
  std::int64_t tokens_ = 0;
  bool is_finished_ = false;
  std::vector<std::byte> buffer_;
};

// Tokens without a header, in a file that nobody else sees.
class HiddenTokenFile {
 public:
  explicit HiddenTokenFile(TokenWidth width);
  void write(std::span<const std::int32_t> tokens);
  PosixFile take();  // to read; no write may follow

 private:
  TokenWidth width_;
  HiddenFile file_;
  std::vector<std::byte> buffer_;
};

}  // namespace spillway
