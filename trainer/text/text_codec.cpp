#include "trainer/text/text_codec.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "memory/base/error.h"
#include "trainer/text/utf8.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kReplacement = "\xef\xbf\xbd";
constexpr std::size_t kLongestCharacter = 4;

// Number of bytes of a character with this first byte; 0 if no character begins with it.
std::size_t length_by(unsigned char first) {
  return first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
}

}  // namespace

std::string tokenizer_of(const RunOptions& options) {
  if (!options.model.kept_tokenizer.empty()) return options.model.kept_tokenizer;
  if (!options.data.tokenizer.empty()) return options.data.tokenizer;
  std::error_code ignored;
  const fs::path model = options.model.model;
  const fs::path directory = fs::is_directory(model, ignored) ? model : model.parent_path();
  const bool is_file = fs::exists(model, ignored);
  const fs::path own = directory / "tokenizer.json";
  return is_file && fs::is_regular_file(own, ignored) ? own.string() : "";
}

TextCodec::TextCodec(const std::string& tokenizer, std::int64_t vocabulary) : vocabulary_(vocabulary) {
  constexpr const char* allowed = "allowed: bytes, a tokenizer.json, a directory that has one";
  if (tokenizer.empty())
    throw InputError(fmt::format("--tokenizer: not given, and the model has no tokenizer.json; {}", allowed));
  if (tokenizer == "bytes") {
    if (vocabulary < 256)
      throw InputError(fmt::format("--tokenizer bytes: the model has a vocabulary of {}, allowed: 256 or more", vocabulary));
    return;
  }
  std::error_code ignored;
  if (!fs::exists(tokenizer, ignored))
    throw InputError(fmt::format("--tokenizer: found {}, {}", tokenizer, allowed), "there is no such file or directory");
  tokenizer_.emplace(Tokenizer::load(tokenizer));
}

std::vector<std::int32_t> TextCodec::prompt(std::string_view text) const {
  std::vector<std::int32_t> ids;
  if (!tokenizer_) {
    for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
    return ids;
  }
  const std::span<const std::int32_t> leading = tokenizer_->leading_tokens();
  ids.assign(leading.begin(), leading.end());
  tokenizer_->encode(text, ids);
  // A prompt that begins with the leading tokens already, as chat templates write them, does not get them twice.
  const std::size_t twice = 2 * leading.size();
  if (ids.size() >= twice &&
      std::equal(leading.begin(), leading.end(), ids.begin() + static_cast<std::ptrdiff_t>(leading.size()))) {
    ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(leading.size()));
  }
  check(ids);
  return ids;
}

std::vector<std::int32_t> TextCodec::as_it_is(std::string_view text) const {
  if (!tokenizer_) return prompt(text);
  std::vector<std::int32_t> ids;
  tokenizer_->encode(text, ids);
  check(ids);
  return ids;
}

void TextCodec::check(const std::vector<std::int32_t>& ids) const {
  const auto beyond = std::ranges::find_if(ids, [&](std::int32_t id) { return id >= vocabulary_; });
  if (beyond != ids.end()) {
    throw InputError(fmt::format("the prompt has token {} of {}, allowed: below {}, the vocabulary of the model", *beyond,
                                 tokenizer_->path(), vocabulary_),
                     kOtherTokenizer);
  }
}

std::string TextCodec::bytes_of(std::int32_t token) const {
  if (tokenizer_) return tokenizer_->decode({&token, 1}, SpecialTokens::skip);
  return token >= 0 && token < 256 ? std::string(1, static_cast<char>(token)) : std::string();
}

std::optional<std::int32_t> TextCodec::end_of_text() const { return tokenizer_ ? tokenizer_->end_of_text() : std::nullopt; }

std::string Utf8Stream::add(std::string_view bytes) {
  pending_ += bytes;
  std::string whole;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const std::size_t invalid = find_invalid_utf8(rest);
    if (invalid == kValidUtf8) {
      whole += rest;
      rest = {};
      break;
    }
    whole += rest.substr(0, invalid);
    rest.remove_prefix(invalid);
    // An incomplete character may still be completed by later bytes: it waits if its bytes so far are valid.
    const std::size_t length = length_by(static_cast<unsigned char>(rest[0]));
    const bool begins_well =
        std::all_of(rest.begin() + 1, rest.begin() + static_cast<std::ptrdiff_t>(std::min(rest.size(), kLongestCharacter)),
                    [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; });
    if (length > rest.size() && begins_well) break;
    whole += kReplacement;
    rest.remove_prefix(1);
  }
  pending_ = std::string(rest);
  return whole;
}

std::string Utf8Stream::finish() {
  const bool has_rest = !pending_.empty();
  pending_.clear();
  return has_rest ? std::string(kReplacement) : std::string();
}

}  // namespace spillway
