#include "trainer/text/tokenizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "memory/base/error.h"
#include "trainer/text/tokenizer_tables.h"
#include "trainer/text/tokenizer_unicode.h"
#include "trainer/text/utf8.h"

namespace spillway {

struct Tokenizer::Impl {
  TokenizerTables tables;
};

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  return Tokenizer(std::make_unique<const Impl>(Impl{load_tokenizer_tables(path)}));
}

void Tokenizer::encode(std::string_view text, std::vector<std::int32_t>& out) const { TokenEncoder(*this).encode(text, out); }

std::string Tokenizer::decode(std::span<const std::int32_t> ids, SpecialTokens special) const {
  const TokenizerTables& tables = impl_->tables;
  std::string text;
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= vocab_size()) continue;
    const auto i = static_cast<std::size_t>(id);
    if (special == SpecialTokens::skip && tables.is_special[i]) continue;
    text.append(tables.bytes, tables.begin[i], tables.begin[i + 1] - tables.begin[i]);
  }
  return text;
}

std::int64_t Tokenizer::vocab_size() const { return static_cast<std::int64_t>(impl_->tables.is_special.size()); }

std::optional<std::int32_t> Tokenizer::token_id(std::string_view content) const {
  const TokenizerTables& tables = impl_->tables;
  if (const auto added = added_token_id(content)) return added;
  for (std::size_t i = 0; i + 1 < tables.begin.size(); ++i) {
    if (std::string_view(tables.bytes).substr(tables.begin[i], tables.begin[i + 1] - tables.begin[i]) == content &&
        !content.empty())
      return static_cast<std::int32_t>(i);
  }
  return std::nullopt;
}

std::optional<std::int32_t> Tokenizer::added_token_id(std::string_view content) const {
  const auto& added = impl_->tables.added;
  const auto found = std::ranges::find(added, content, &AddedToken::content);
  return found == added.end() ? std::nullopt : std::optional(found->id);
}

std::optional<std::int32_t> Tokenizer::end_of_text() const {
  constexpr std::array<std::string_view, 6> kNames = {"<|endoftext|>",
                                                      "<|end_of_text|>",
                                                      "</s>",
                                                      "<eos>",
                                                      "<|eos|>",
                                                      "<\xef\xbd\x9c"
                                                      "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"};
  for (const std::string_view name : kNames) {
    if (const auto id = added_token_id(name)) return id;
  }
  return std::nullopt;
}

std::size_t Tokenizer::last_cut(std::string_view text) const { return last_safe_cut(text, impl_->tables.safe_cuts); }

std::span<const std::int32_t> Tokenizer::leading_tokens() const { return impl_->tables.leading; }

const std::string& Tokenizer::path() const { return impl_->tables.path; }

struct TokenEncoder::Impl {
  explicit Impl(const TokenizerTables& t) : tables(t), split(t.splitter.scratch()), bpe(t.model) {}

  void encode_text(std::string_view text, Stretch stretch) {
    const std::size_t invalid = find_invalid_utf8(text);
    if (invalid != kValidUtf8) throw InputError(fmt::format("text: {}", invalid_utf8_message(text, invalid, 0)));
    tables.raw_finder.split(
        text,
        [&](std::string_view piece) {
          piece_at = static_cast<std::size_t>(piece.data() - text.data());
          encode_piece(piece, piece_at == 0, stretch == Stretch::continued);
        },
        [&](std::int32_t id, std::size_t end) {
          ids->push_back(id);
          if (ends != nullptr) ends->push_back(end);
        });
  }

  // Where the result of a call goes.
  std::vector<std::int32_t>* ids = nullptr;
  std::vector<std::size_t>* ends = nullptr;  // null: nobody asks

 private:
  // `begins`: the piece is the first of the text. `goes_on`: the text continues other text.
  void encode_piece(std::string_view piece, bool begins, bool goes_on) {
    const std::string_view text = tables.normalization.apply(piece, begins && goes_on, normalized, &normal_map);
    const auto is_first = [&](std::string_view part) { return begins && !goes_on && part.data() == text.data(); };
    if (tables.normalized_finder.is_empty()) return encode_words(text, is_first(text), 0);
    tables.normalized_finder.split(
        text,
        [&](std::string_view part) { encode_words(part, is_first(part), static_cast<std::size_t>(part.data() - text.data())); },
        [&](std::int32_t id, std::size_t end) {
          ids->push_back(id);
          if (ends != nullptr) ends->push_back(piece_at + normal_map.source_end(end));
        });
  }
  // `at`: offset of `text` in the normalized piece.
  void encode_words(std::string_view text, bool begins, std::size_t at) {
    const bool marks_spaces = tables.model.symbols == Symbols::characters;
    const std::string_view spaced_text = marks_spaces ? with_spaces(text, spaced, &spaced_map) : text;
    tables.splitter.split(spaced_text, begins, split, [&](std::string_view word, std::ptrdiff_t word_at) {
      const std::size_t before = ids->size();
      bpe.encode(word, *ids);
      if (ends == nullptr) return;
      std::size_t end = 0;
      for (std::size_t i = before; i < ids->size(); ++i) {
        const auto id = static_cast<std::size_t>((*ids)[i]);
        end = bpe.end_of_token(word, end, (*ids)[i], tables.begin[id + 1] - tables.begin[id]);
        const auto in_spaced = static_cast<std::size_t>(std::max<std::ptrdiff_t>(word_at + static_cast<std::ptrdiff_t>(end), 0));
        const std::size_t in_text = marks_spaces ? spaced_map.source_end(in_spaced) : in_spaced;
        ends->push_back(piece_at + normal_map.source_end(at + in_text));
      }
    });
  }

  const TokenizerTables& tables;
  SplitScratch split;
  BpeEncoder bpe;
  std::string normalized, spaced;
  TextMap normal_map, spaced_map;
  std::size_t piece_at = 0;  // offset of the current piece in the text
};

TokenEncoder::TokenEncoder(const Tokenizer& tokenizer) : impl_(std::make_unique<Impl>(tokenizer.impl_->tables)) {}
TokenEncoder::~TokenEncoder() = default;
TokenEncoder::TokenEncoder(TokenEncoder&&) noexcept = default;
TokenEncoder& TokenEncoder::operator=(TokenEncoder&&) noexcept = default;

void TokenEncoder::encode(std::string_view text, std::vector<std::int32_t>& out, Stretch stretch) {
  impl_->ids = &out;
  impl_->ends = nullptr;
  impl_->encode_text(text, stretch);
}

void TokenEncoder::encode(std::string_view text, std::vector<std::int32_t>& out, std::vector<std::size_t>& ends) {
  impl_->ids = &out;
  impl_->ends = &ends;
  impl_->encode_text(text, Stretch::first);
}

std::string invalid_utf8_message(std::string_view text, std::size_t offset, std::int64_t first_byte) {
  return fmt::format("found byte 0x{:02x} at byte {}, which is not UTF-8", static_cast<unsigned char>(text[offset]),
                     first_byte + static_cast<std::int64_t>(offset));
}

}  // namespace spillway
