// Turns text into tokens and back, by a model's tokenizer.json: byte-pair encoding of bytes (GPT-2, Llama 3, Qwen, SmolLM and
// kin) or of characters with marked spaces (SentencePiece's kind: Llama 2, Mistral, Gemma). The tokens are those of the
// `tokenizers` library without special tokens added.
// Not here: files of text and of tokens (trainer/data/text_documents.h, trainer/data/token_file.h), chat templates, other kinds
// of models (unigram, word-piece), which are refused by name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

// Advice if a text has a token that the model has no row for.
inline constexpr const char* kOtherTokenizer = "the tokenizer must be that of the model; --tokenizer names another";

enum class SpecialTokens : std::uint8_t { keep, skip };
// first: a text, or its beginning; continued: the text after a cut (last_cut).
enum class Stretch : std::uint8_t { first, continued };

// Immutable once loaded: several threads may use it at the same time.
class Tokenizer {
 public:
  // Loads a tokenizer.json, or a directory that has one.
  static Tokenizer load(const std::filesystem::path& path);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // Appends the ids of `text`. For more than a prompt, a TokenEncoder is faster: it has a cache.
  void encode(std::string_view text, std::vector<std::int32_t>& out) const;
  // Returns the bytes of the tokens. They may end within a character that the next token completes. Ids without a token add
  // nothing. If the tokenizer marks spaces, the space that it put before the text stays in the result.
  std::string decode(std::span<const std::int32_t> ids, SpecialTokens special = SpecialTokens::keep) const;

  std::int64_t vocab_size() const;  // the largest id + 1
  std::optional<std::int32_t> token_id(std::string_view content) const;
  std::optional<std::int32_t> added_token_id(std::string_view content) const;  // of "added_tokens" alone
  // The token that separates documents, found by one of its usual names; nothing if the tokenizer has none of them.
  std::optional<std::int32_t> end_of_text() const;

  // The tokens that the file's post-processor puts before a text that a model is asked to continue, such as Llama's
  // <|begin_of_text|>.
  std::span<const std::int32_t> leading_tokens() const;

  // The last offset at which `text` may be cut so that its two parts give the tokens of the whole; npos if none is known.
  std::size_t last_cut(std::string_view text) const;

  const std::string& path() const;  // path of the file

 private:
  friend class TokenEncoder;
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

// Encodes texts for one caller at a time, with caches and scratch memory of its own. The tokenizer must outlive it.
class TokenEncoder {
 public:
  explicit TokenEncoder(const Tokenizer& tokenizer);
  ~TokenEncoder();
  TokenEncoder(TokenEncoder&&) noexcept;
  TokenEncoder& operator=(TokenEncoder&&) noexcept;

  // Appends the ids of `text`. Throws InputError if it is not UTF-8.
  void encode(std::string_view text, std::vector<std::int32_t>& out, Stretch stretch = Stretch::first);
  // The same, and appends to `ends` for each id the offset in `text` at which its token ends. Tokens lie one behind the other:
  // bytes without a token (such as white space that a token strips) belong to one beside them. A token is empty if all that it
  // spells was put there by the tokenizer, such as the space before a text.
  void encode(std::string_view text, std::vector<std::int32_t>& out, std::vector<std::size_t>& ends);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// "found byte 0xff at byte 17, which is not UTF-8": continues a message that begins with a file's name.
std::string invalid_utf8_message(std::string_view text, std::size_t offset, std::int64_t first_byte);

}  // namespace spillway
