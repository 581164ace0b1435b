// Reads tokenizer.json into tables. It takes the vocabulary and the merges as the parser meets them, so that no tree of a few
// hundred thousand nodes stands in memory beside a training run.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <system_error>

#include "files/json_place.h"
#include "files/json_text.h"
#include "files/placeholder.h"
#include "files/posix_file.h"
#include "files/strict_json.h"
#include "memory/base/error.h"
#include "trainer/text/tokenizer_tables.h"
#include "trainer/text/tokenizer_unicode.h"
#include "trainer/text/utf8.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr Bytes kLargestFile = kGiB;
constexpr std::int64_t kMostIds = std::int64_t{1} << 24;

// The byte that a token of SentencePiece's kind spells: "<0x0A>" gives 10, any other token nothing.
std::optional<unsigned char> spelled_byte(std::string_view token) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  const std::size_t high = kDigits.find(token[3]), low = kDigits.find(token[4]);
  if (high == kDigits.npos || low == kDigits.npos) return std::nullopt;
  return static_cast<unsigned char>(16 * high + low);
}

// The byte-level alphabet: printable bytes stand for themselves; the other bytes, in order, become the code points from 256 on.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    byte_of_.fill(-1);
    std::int32_t next = 256;
    for (std::int32_t byte = 0; byte < 256; ++byte) {
      const bool stands_for_itself = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      byte_of_[static_cast<std::size_t>(stands_for_itself ? byte : next++)] = static_cast<std::int16_t>(byte);
    }
  }
  // Appends the bytes that `token` stands for. Returns false, and appends nothing, if one of its characters is not in the
  // alphabet.
  bool append_bytes(std::string_view token, std::string& out) const {
    const std::size_t before = out.size();
    for (std::size_t i = 0; i < token.size();) {
      const CodePoint c = decode_utf8(token.data() + i);
      if (c.value >= static_cast<std::int32_t>(byte_of_.size()) || byte_of_[static_cast<std::size_t>(c.value)] < 0) {
        out.resize(before);
        return false;
      }
      out.push_back(static_cast<char>(byte_of_[static_cast<std::size_t>(c.value)]));
      i += static_cast<std::size_t>(c.bytes);
    }
    return true;
  }

 private:
  std::array<std::int16_t, 324> byte_of_;  // by code point
};

// Strings by index, all in one arena.
class StringList {
 public:
  void add(std::string_view text) {
    arena_.append(text);
    ends_.push_back(arena_.size());
  }
  std::size_t size() const { return ends_.size(); }
  std::size_t bytes() const { return arena_.size(); }
  std::string_view at(std::size_t i) const {
    const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(arena_).substr(begin, ends_[i] - begin);
  }

 private:
  std::string arena_;
  std::vector<std::size_t> ends_;
};

struct RawFile {
  json rest;                      // everything but vocabulary and merges
  StringList words;               // of the vocabulary
  std::vector<std::int32_t> ids;  // [words]
  StringList merge_parts;         // whole lines, or the two parts of each pair
  bool has_pairs = false;
  bool has_vocabulary = false;
  bool has_merges = false;
};

// Follows the parser through the file and tells which values belong to model.vocab and model.merges.
class FileReader {
 public:
  explicit FileReader(RawFile& raw, const std::string& where) : raw_(raw), where_(where) {}

  bool operator()(int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::key) {
      if (depth == 1) in_model_ = parsed.get_ref<const std::string&>() == "model";
      if (depth == 2) {
        const auto& name = parsed.get_ref<const std::string&>();
        in_vocabulary_ = in_model_ && name == "vocab";
        in_merges_ = in_model_ && name == "merges";
      }
      if (depth == 3 && in_model_ && in_vocabulary_) word_ = parsed.get<std::string>();
      return true;
    }
    if (!in_model_ || depth < 2) return true;
    if (event == json::parse_event_t::object_start && depth == 2 && in_vocabulary_) raw_.has_vocabulary = true;
    if (event == json::parse_event_t::array_start && depth == 2 && in_merges_) raw_.has_merges = true;
    if (in_vocabulary_ && raw_.has_vocabulary && depth == 3) {
      if (event != json::parse_event_t::value) return true;  // refused at its end: a number belongs here
      if (!parsed.is_number_integer() || parsed.get<std::int64_t>() < 0 || parsed.get<std::int64_t>() >= kMostIds) {
        throw InputError(
            fmt::format("{}: found the id {} of {}, allowed: 0 to {}", where_, parsed.dump(), quoted_json(word_), kMostIds - 1));
      }
      raw_.words.add(word_);
      raw_.ids.push_back(parsed.get<std::int32_t>());
      return false;
    }
    if (in_merges_ && raw_.has_merges && depth >= 3) {
      if (event == json::parse_event_t::array_start) raw_.has_pairs = true;
      if (event == json::parse_event_t::array_end) {
        if (raw_.merge_parts.size() % 2 != 0) refuse_merge(raw_.merge_parts.size() / 2);
        return false;
      }
      if (event != json::parse_event_t::value) return true;
      if (!parsed.is_string() || raw_.has_pairs != (depth == 4)) refuse_merge(raw_.merge_parts.size());
      raw_.merge_parts.add(parsed.get_ref<const std::string&>());
      return false;
    }
    return true;
  }

 private:
  [[noreturn]] void refuse_merge(std::size_t index) const {
    throw InputError(fmt::format("{}: merge {} is neither \"a b\" nor [\"a\", \"b\"]", where_, index));
  }

  RawFile& raw_;
  std::string where_;
  std::string word_;
  bool in_model_ = false;
  bool in_vocabulary_ = false;
  bool in_merges_ = false;
};

RawFile read_raw(const std::string& path) {
  const std::string text = read_text_file(path, kLargestFile);
  RawFile raw;
  try {
    raw.rest = json::parse(text, FileReader(raw, path));
  } catch (const json::parse_error& error) {
    refuse_placeholder(path, std::string_view(text).substr(0, kPlaceholderBytes), static_cast<Bytes>(text.size()));
    throw InputError(fmt::format("{}: not valid JSON at byte {}", path, error.byte));
  }
  return raw;
}

void check_model(const JsonPlace& model, const RawFile& raw) {
  // Files from GPT-2's time have no type; they are recognized by their merges.
  if (const JsonPlace type = model.at("type"); type.is_there() ? type.text() != "BPE" : !raw.has_merges)
    type.refuse(fmt::format("is {}; BPE is allowed", type.is_there() ? shown(type.json()) : "missing"),
                "Only byte-pair encoding is read.");
  if (!raw.has_vocabulary) model.at("vocab").refuse("is missing, or no object");
  if (!raw.has_merges) model.at("merges").refuse("is missing, or no array");
  if (const JsonPlace dropout = model.at("dropout"); dropout.is_set() && dropout.json() != 0)
    dropout.refuse(fmt::format("is {}; null is allowed", shown(dropout.json())),
                   "With dropout the same text has other tokens each time.");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (const JsonPlace text = model.at(key); text.is_set() && text.json() != "")
      text.refuse(fmt::format("is {}; none is allowed", shown(text.json())));
  }
}

struct Vocabulary {
  std::unordered_map<std::string_view, std::int32_t> id_of;
  std::int64_t size = 0;  // number of different words
  std::int64_t ids = 0;   // largest id + 1
};

void read_merges(const RawFile& raw, const Vocabulary& vocabulary, const std::string& path, BpeModel& model) {
  const std::size_t count = raw.has_pairs ? raw.merge_parts.size() / 2 : raw.merge_parts.size();
  model.merges.reserve(count);
  std::string merged;
  for (std::size_t i = 0; i < count; ++i) {
    std::string_view left;
    std::string_view right;
    if (raw.has_pairs) {
      left = raw.merge_parts.at(2 * i);
      right = raw.merge_parts.at(2 * i + 1);
    } else {
      const std::string_view line = raw.merge_parts.at(i);
      const std::size_t space = line.find(' ');
      if (space == line.npos || line.find(' ', space + 1) != line.npos)
        throw InputError(fmt::format("{}: merge {} is {}, allowed: two tokens with a space between", path, i, quoted_json(line)));
      left = line.substr(0, space);
      right = line.substr(space + 1);
    }
    merged.assign(left).append(right);
    std::array<std::int32_t, 3> ids{};
    std::size_t k = 0;
    for (const std::string_view part : {left, right, std::string_view(merged)}) {
      const auto found = vocabulary.id_of.find(part);
      if (found == vocabulary.id_of.end()) {
        throw InputError(fmt::format("{}: merge {} needs the token {}, which the vocabulary lacks", path, i, quoted_json(part)));
      }
      ids[k++] = found->second;
    }
    model.merges.insert(ids[0], ids[1], {static_cast<std::uint32_t>(i), ids[2]});
  }
}

void read_words_of_bytes(const RawFile& raw, BpeModel& model) {
  const ByteAlphabet alphabet;
  std::string bytes;
  for (std::size_t i = 0; i < raw.words.size(); ++i) {
    bytes.clear();
    if (!alphabet.append_bytes(raw.words.at(i), bytes) || bytes.empty()) continue;
    if (bytes.size() == 1) model.byte_ids[static_cast<unsigned char>(bytes[0])] = raw.ids[i];
    if (model.takes_whole_words) model.words.insert(bytes, raw.ids[i]);
  }
}

// Words with a space of their own are left out: no text has them, because its spaces are marked.
void read_words_of_characters(const RawFile& raw, BpeModel& model) {
  const auto is_character = [](std::string_view word) {
    return !word.empty() && static_cast<std::size_t>(decode_utf8(word.data()).bytes) == word.size();
  };
  std::size_t characters = 0;
  for (std::size_t i = 0; i < raw.words.size(); ++i) characters += is_character(raw.words.at(i)) ? 1 : 0;
  constexpr std::size_t kLongestCharacter = 4;
  model.characters.reserve(characters, characters * kLongestCharacter);
  std::string buffer;
  for (std::size_t i = 0; i < raw.words.size(); ++i) {
    const std::string_view word = raw.words.at(i);
    if (word.empty() || word.find(' ') != word.npos) continue;
    if (const auto byte = spelled_byte(word)) model.byte_ids[*byte] = raw.ids[i];
    const std::string_view text = with_spaces(word, buffer);
    if (is_character(text)) model.characters.insert(text, raw.ids[i]);
    if (model.takes_whole_words) model.words.insert(text, raw.ids[i]);
  }
}

// Returns true if no token has a mark after any other character, so that no merge crosses the beginning of a marked word.
bool begin_with_their_marks(const StringList& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string_view word = words.at(i);
    while (word.starts_with(kSpaceMark)) word.remove_prefix(kSpaceMark.size());
    if (word.find(kSpaceMark) != word.npos) return false;
  }
  return true;
}

void read_symbols(const JsonPlace& said, const RawFile& raw, const Vocabulary& vocabulary, BpeModel& model) {
  const bool by_characters = model.symbols == Symbols::characters;
  model.takes_whole_words = said.at("ignore_merges").boolean_or(false);
  if (model.takes_whole_words) model.words.reserve(raw.words.size(), raw.words.bytes());
  std::ranges::fill(model.byte_ids, WordTable::kNone);
  by_characters ? read_words_of_characters(raw, model) : read_words_of_bytes(raw, model);
  const bool has_all_bytes = std::ranges::find(model.byte_ids, WordTable::kNone) == std::end(model.byte_ids);
  const JsonPlace falls_back = said.at("byte_fallback");
  if (falls_back.boolean_or(false) && !has_all_bytes)
    falls_back.refuse("is true, but the vocabulary lacks bytes; false is allowed");
  model.falls_back = by_characters && falls_back.boolean_or(false);
  model.knows_all = by_characters ? model.falls_back : has_all_bytes;
  if (model.knows_all) return;
  const JsonPlace unknown = said.at("unk_token");
  if (!unknown.is_set()) return;
  const auto found = vocabulary.id_of.find(unknown.text());
  if (found == vocabulary.id_of.end()) unknown.refuse(fmt::format("is {}, which the vocabulary lacks", shown(unknown.json())));
  model.unknown_id = found->second;
  model.unknown = said.at("fuse_unk").boolean_or(false) ? Unknown::one_token_a_run : Unknown::one_token_each;
}

// Ids follow the reference implementation: the vocabulary's id if it has the token, else the next free one.
std::vector<AddedToken> read_added(const JsonPlace& added, Vocabulary& vocabulary) {
  std::vector<AddedToken> tokens;
  if (!added.is_set()) return tokens;
  std::int64_t next = vocabulary.size;
  for (std::size_t i = 0; i < added.size(); ++i) {
    const JsonPlace entry = added.at(i);
    AddedToken token;
    token.content = entry.at("content").text();
    token.is_special = entry.at("special").boolean_or(false);
    token.is_normalized = entry.at("normalized").boolean_or(!token.is_special);
    token.strips_left = entry.at("lstrip").boolean_or(false);
    token.strips_right = entry.at("rstrip").boolean_or(false);
    token.is_single_word = entry.at("single_word").boolean_or(false);
    if (token.content.empty()) continue;
    const auto same = std::ranges::find(tokens, token.content, &AddedToken::content);
    const auto known = vocabulary.id_of.find(token.content);
    if (same != tokens.end()) {
      token.id = same->id;
      *same = token;
      continue;
    }
    token.id = static_cast<std::int32_t>(known != vocabulary.id_of.end() ? known->second : next);
    if (token.id >= next) next = token.id + 1;
    const JsonPlace id = entry.at("id");
    if (id.integer(0, kMostIds - 1) != token.id)
      id.refuse(fmt::format("is {}, but that of {} is {}", id.json().dump(), shown_name(token.content), token.id));
    vocabulary.ids = std::max<std::int64_t>(vocabulary.ids, token.id + 1);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

void make_finders(TokenizerTables& tables) {
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  // Special tokens go first: of equal tokens the first one counts.
  for (const bool special : {true, false}) {
    for (const AddedToken& token : tables.added) {
      if (token.is_special == special) (token.is_normalized ? normalized : raw).push_back(token);
    }
  }
  const auto contents_of = [&](const std::vector<AddedToken>& tokens, const Normalization& normalization) {
    std::vector<std::string> contents;
    std::string buffer;
    for (const AddedToken& token : tokens) contents.emplace_back(normalization.apply(token.content, false, buffer));
    return contents;
  };
  tables.raw_finder = AddedTokenFinder(raw, contents_of(raw, {}));
  tables.normalized_finder =
      AddedTokenFinder(normalized, contents_of(normalized, tables.normalization), tables.normalization.marks_spaces());
}

// Returns true if cuts are safe. A cut must not go through an added token, nor between a token and the white space that it
// strips, nor before a single-word token that begins with a mark: after the cut it would not see the word before it.
bool added_tokens_allow_cuts(const std::vector<AddedToken>& tokens, bool begin_with_mark) {
  return std::ranges::none_of(tokens, [begin_with_mark](const AddedToken& token) {
    const std::string& text = token.content;
    return (text.find('\n') != text.npos && text.find('\n') + 1 != text.size()) ||
           (text.rfind(' ') != text.npos && text.rfind(' ') != 0) ||
           (token.strips_left && is_letter(decode_utf8(text.data()).value)) ||
           (token.strips_right && is_letter(decode_last_utf8(text).value)) ||
           (begin_with_mark && token.is_normalized && token.is_single_word);
  });
}

void make_bytes(const RawFile& raw, std::int64_t ids, TokenizerTables& tables) {
  const ByteAlphabet alphabet;
  std::string buffer;
  std::vector<std::string_view> content(static_cast<std::size_t>(ids));
  tables.is_special.assign(content.size(), false);
  for (std::size_t i = 0; i < raw.words.size(); ++i) content[static_cast<std::size_t>(raw.ids[i])] = raw.words.at(i);
  for (const AddedToken& token : tables.added) {
    content[static_cast<std::size_t>(token.id)] = token.content;
    tables.is_special[static_cast<std::size_t>(token.id)] = token.is_special;
  }
  tables.begin.reserve(content.size() + 1);
  for (const std::string_view token : content) {
    tables.begin.push_back(static_cast<std::uint32_t>(tables.bytes.size()));
    if (tables.model.symbols == Symbols::characters) {
      const auto byte = spelled_byte(token);
      tables.bytes.append(byte ? std::string_view(buffer.assign(1, static_cast<char>(*byte))) : with_spaces(token, buffer));
    } else if (!alphabet.append_bytes(token, tables.bytes)) {
      tables.bytes.append(token);
    }
  }
  tables.begin.push_back(static_cast<std::uint32_t>(tables.bytes.size()));
}

// Adds the special tokens that stand before the text in the post-processor's template for a single text, if it has one.
// Everything else about a post-processor concerns what follows a text, or offsets.
void add_leading(const json& processor, std::int64_t ids, std::vector<std::int32_t>& leading) {
  if (!processor.is_object()) return;
  if (const auto parts = processor.find("processors"); parts != processor.end() && parts->is_array()) {
    for (const json& part : *parts) add_leading(part, ids, leading);
    return;
  }
  const auto single = processor.find("single"), special = processor.find("special_tokens");
  if (single == processor.end() || !single->is_array() || special == processor.end() || !special->is_object()) return;
  for (const json& item : *single) {
    if (!item.is_object() || !item.contains("SpecialToken")) return;
    const json& token = item["SpecialToken"];
    const auto found = token.is_object() && token.contains("id") && token["id"].is_string()
                           ? special->find(token["id"].get<std::string>())
                           : special->end();
    if (found == special->end() || !found->is_object() || !found->contains("ids") || !(*found)["ids"].is_array()) return;
    for (const json& id : (*found)["ids"]) {
      if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() >= ids) return;
      leading.push_back(id.get<std::int32_t>());
    }
  }
}

std::filesystem::path file_of(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path) ? path / "tokenizer.json" : path;
}

}  // namespace

TokenizerTables load_tokenizer_tables(const std::filesystem::path& given) {
  const std::string path = file_of(given).string();
  const RawFile raw = read_raw(path);
  const JsonPlace file(raw.rest, path), model = file.at("model"), pre_tokenizer = file.at("pre_tokenizer");
  check_model(model, raw);
  const Normalization normalization(file.at("normalizer"));
  const bool marks_spaces = normalization.marks_spaces() || has_metaspace(pre_tokenizer);
  TokenizerTables tables{.path = path,
                         .normalization = normalization,
                         .splitter = Splitter(pre_tokenizer, marks_spaces, path),
                         .model = {},
                         .added = {},
                         .raw_finder = {},
                         .normalized_finder = {},
                         .bytes = {},
                         .begin = {},
                         .is_special = {},
                         .safe_cuts = {},
                         .leading = {}};
  Vocabulary vocabulary;
  vocabulary.id_of.reserve(raw.words.size());
  for (std::size_t i = 0; i < raw.words.size(); ++i) {
    vocabulary.id_of[raw.words.at(i)] = raw.ids[i];
    vocabulary.ids = std::max<std::int64_t>(vocabulary.ids, raw.ids[i] + 1);
  }
  vocabulary.size = static_cast<std::int64_t>(vocabulary.id_of.size());
  read_merges(raw, vocabulary, path, tables.model);
  if (marks_spaces) tables.model.symbols = Symbols::characters;
  read_symbols(model, raw, vocabulary, tables.model);
  // With "ignore_merges" whole words are looked up as the file splits them, so words end before spaces only without it.
  if (marks_spaces && !tables.model.takes_whole_words && begin_with_their_marks(raw.words))
    tables.splitter.end_words_before_spaces();
  tables.added = read_added(file.at("added_tokens"), vocabulary);
  make_finders(tables);
  make_bytes(raw, vocabulary.ids, tables);
  if (raw.rest.contains("post_processor")) add_leading(raw.rest.at("post_processor"), vocabulary.ids, tables.leading);
  if (added_tokens_allow_cuts(tables.added, normalization.begins_with_mark())) tables.safe_cuts = tables.splitter.safe_cuts();
  return tables;
}

}  // namespace spillway
