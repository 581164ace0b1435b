// tokenizer.json into tables. The vocabulary and the merges are taken as the parser meets them, so that no tree of a few hundred
// thousand nodes stands in memory beside a training run.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <system_error>

#include "memory/error.h"
#include "models/posix_file.h"
#include "trainer/text/tokenizer_json.h"
#include "trainer/text/tokenizer_tables.h"
#include "trainer/text/tokenizer_unicode.h"
#include "trainer/text/utf8.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr Bytes kLargestFile = kGiB;
constexpr std::int64_t kMostIds = std::int64_t{1} << 24;

// The byte-level alphabet: printable bytes stand for themselves, the others for code points from 256 on, in their order.
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
  // Appends the bytes that `token` stands for; false, and nothing appended, where a character of it is not in the alphabet.
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

// Strings in one arena, by index.
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
  json rest;                      // all but vocabulary and merges
  StringList words;               // of the vocabulary
  std::vector<std::int32_t> ids;  // [words]
  StringList merge_parts;         // lines, or the two parts of each pair
  bool has_pairs = false;
  bool has_vocabulary = false;
  bool has_merges = false;
};

// Follows the parser through the file: which values belong to model.vocab and model.merges.
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
      if (event != json::parse_event_t::value) return true;  // refused where it ends: a number belongs here
      if (!parsed.is_number_integer() || parsed.get<std::int64_t>() < 0 || parsed.get<std::int64_t>() >= kMostIds) {
        throw InputError(
            fmt::format("{}: found the id {} of {}, allowed: 0 to {}", where_, parsed.dump(), json(word_).dump(), kMostIds - 1));
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
    throw InputError(fmt::format("{}: not valid JSON at byte {}", path, error.byte));
  }
  if (!raw.rest.is_object()) throw InputError(fmt::format("{}: found no object, allowed: a tokenizer.json", path));
  return raw;
}

Normalization normalization_of(const json& rest, const std::string& path) {
  if (!rest.contains("normalizer") || rest.at("normalizer").is_null()) return Normalization::none;
  const json& normalizer = rest.at("normalizer");
  const std::string where = path + ": normalizer";
  const std::string type = tokenizer_json::text(normalizer, "type", where);
  if (type == "NFC") return Normalization::nfc;
  if (type != "Sequence") throw InputError(fmt::format("{}: found {}, allowed: NFC, a Sequence of it, null", where, type));
  Normalization result = Normalization::none;
  for (const json& part : tokenizer_json::member(normalizer, "normalizers", where)) {
    const std::string inner = tokenizer_json::text(part, "type", where);
    if (inner != "NFC") throw InputError(fmt::format("{}: found {}, allowed: NFC, a Sequence of it, null", where, inner));
    result = Normalization::nfc;
  }
  return result;
}

void check_model(const json& model, const RawFile& raw, const std::string& path) {
  const std::string where = path + ": model";
  // Files of GPT-2's time have no type; their merges say what they are.
  const std::string type = model.is_object() && model.contains("type") ? tokenizer_json::text(model, "type", where)
                           : raw.has_merges                            ? "BPE"
                                                                       : "no type";
  if (type != "BPE")
    throw InputError(fmt::format("{}: found {}, allowed: BPE", where, type), "only byte-level BPE tokenizers are read");
  if (!raw.has_vocabulary) throw InputError(fmt::format("{}: found no \"vocab\"", where));
  if (!raw.has_merges) throw InputError(fmt::format("{}: found no \"merges\"", where));
  if (model.contains("dropout") && !model.at("dropout").is_null() && model.at("dropout") != 0)
    throw InputError(fmt::format("{}: found dropout {}, allowed: null", where, model.at("dropout").dump()),
                     "with dropout the same text has other tokens each time");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (model.contains(key) && !model.at(key).is_null() && model.at(key) != "")
      throw InputError(fmt::format("{}: found {} {}, allowed: none", where, key, model.at(key).dump()));
  }
}

struct Vocabulary {
  std::unordered_map<std::string_view, std::int32_t> id_of;
  std::int64_t size = 0;  // of different words
  std::int64_t ids = 0;   // the largest + 1
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
        throw InputError(
            fmt::format("{}: merge {} is {}, allowed: two tokens with a space between", path, i, json(std::string(line)).dump()));
      left = line.substr(0, space);
      right = line.substr(space + 1);
    }
    merged.assign(left).append(right);
    std::array<std::int32_t, 3> ids{};
    std::size_t k = 0;
    for (const std::string_view part : {left, right, std::string_view(merged)}) {
      const auto found = vocabulary.id_of.find(part);
      if (found == vocabulary.id_of.end()) {
        throw InputError(
            fmt::format("{}: merge {} needs the token {}, which the vocabulary lacks", path, i, json(std::string(part)).dump()));
      }
      ids[k++] = found->second;
    }
    model.merges.insert(ids[0], ids[1], {static_cast<std::uint32_t>(i), ids[2]});
  }
}

void read_bytes_and_words(const json& json_model, const RawFile& raw, const Vocabulary& vocabulary, const std::string& path,
                          BpeModel& model) {
  const std::string where = path + ": model";
  const ByteAlphabet alphabet;
  model.takes_whole_words = tokenizer_json::boolean(json_model, "ignore_merges", false, where);
  if (model.takes_whole_words) model.words.reserve(raw.words.size(), raw.words.bytes());
  std::ranges::fill(model.byte_ids, WordTable::kNone);
  std::string bytes;
  for (std::size_t i = 0; i < raw.words.size(); ++i) {
    bytes.clear();
    if (!alphabet.append_bytes(raw.words.at(i), bytes) || bytes.empty()) continue;
    if (bytes.size() == 1) model.byte_ids[static_cast<unsigned char>(bytes[0])] = raw.ids[i];
    if (model.takes_whole_words) model.words.insert(bytes, raw.ids[i]);
  }
  const bool is_complete = std::ranges::find(model.byte_ids, WordTable::kNone) == std::end(model.byte_ids);
  if (is_complete) return;
  if (tokenizer_json::boolean(json_model, "byte_fallback", false, where)) {
    throw InputError(
        fmt::format("{}: found byte_fallback with a vocabulary that lacks bytes, allowed: byte_fallback false", where));
  }
  if (!json_model.contains("unk_token") || json_model.at("unk_token").is_null()) return;
  const std::string unknown = tokenizer_json::text(json_model, "unk_token", where);
  const auto found = vocabulary.id_of.find(unknown);
  if (found == vocabulary.id_of.end())
    throw InputError(fmt::format("{}: found unk_token {}, which the vocabulary lacks", where, json(unknown).dump()));
  model.unknown_id = found->second;
  model.unknown = tokenizer_json::boolean(json_model, "fuse_unk", false, where) ? UnknownBytes::one_token_a_run
                                                                                : UnknownBytes::one_token_each;
}

// Ids follow the reference implementation: the vocabulary's where it has the token, else the next free one.
std::vector<AddedToken> read_added(const json& rest, Vocabulary& vocabulary, const std::string& path) {
  std::vector<AddedToken> tokens;
  if (!rest.contains("added_tokens") || rest.at("added_tokens").is_null()) return tokens;
  const std::string where = path + ": added_tokens";
  std::int64_t next = vocabulary.size;
  for (const json& entry : rest.at("added_tokens")) {
    AddedToken token;
    token.content = tokenizer_json::text(entry, "content", where);
    token.is_special = tokenizer_json::boolean(entry, "special", false, where);
    token.is_normalized = tokenizer_json::boolean(entry, "normalized", !token.is_special, where);
    token.strips_left = tokenizer_json::boolean(entry, "lstrip", false, where);
    token.strips_right = tokenizer_json::boolean(entry, "rstrip", false, where);
    token.is_single_word = tokenizer_json::boolean(entry, "single_word", false, where);
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
    const json& id = tokenizer_json::member(entry, "id", where);
    if (!id.is_number_integer() || id != token.id) {
      throw InputError(fmt::format("{}: found the id {} of {}, allowed: {}, as the vocabulary has it", where, id.dump(),
                                   json(token.content).dump(), token.id));
    }
    vocabulary.ids = std::max<std::int64_t>(vocabulary.ids, token.id + 1);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

void make_finders(TokenizerTables& tables) {
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  // Special ones first: of equal ones the first counts.
  for (const bool special : {true, false}) {
    for (const AddedToken& token : tables.added) {
      if (token.is_special == special) (token.is_normalized ? normalized : raw).push_back(token);
    }
  }
  const auto contents_of = [&](const std::vector<AddedToken>& tokens, Normalization normalization) {
    std::vector<std::string> contents;
    std::string buffer;
    for (const AddedToken& token : tokens)
      contents.emplace_back(normalization == Normalization::nfc ? to_nfc(token.content, buffer) : token.content);
    return contents;
  };
  tables.raw_finder = AddedTokenFinder(raw, contents_of(raw, Normalization::none));
  tables.normalized_finder = AddedTokenFinder(normalized, contents_of(normalized, tables.normalization));
}

// A cut must not go through an added token, nor between it and the white space that it takes.
bool added_tokens_allow_cuts(const std::vector<AddedToken>& tokens) {
  return std::ranges::none_of(tokens, [](const AddedToken& token) {
    const std::string& text = token.content;
    return (text.find('\n') != text.npos && text.find('\n') + 1 != text.size()) ||
           (text.rfind(' ') != text.npos && text.rfind(' ') != 0) ||
           (token.strips_left && is_letter(decode_utf8(text.data()).value)) ||
           (token.strips_right && is_letter(decode_last_utf8(text).value));
  });
}

void make_bytes(const RawFile& raw, std::int64_t ids, TokenizerTables& tables) {
  const ByteAlphabet alphabet;
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
    if (!alphabet.append_bytes(token, tables.bytes)) tables.bytes.append(token);
  }
  tables.begin.push_back(static_cast<std::uint32_t>(tables.bytes.size()));
}

// The special tokens before the text in the template for a single one, where there is a template. Anything else about a
// post-processor concerns what follows a text, or offsets.
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
  return std::filesystem::is_directory(path, ignored) ? path / "tokenizer.json" : path;
}

}  // namespace

TokenizerTables load_tokenizer_tables(const std::filesystem::path& given) {
  const std::string path = file_of(given).string();
  const RawFile raw = read_raw(path);
  const json model = tokenizer_json::member(raw.rest, "model", path);
  check_model(model, raw, path);
  TokenizerTables tables{.path = path,
                         .normalization = normalization_of(raw.rest, path),
                         .splitter = Splitter(raw.rest.contains("pre_tokenizer") ? raw.rest.at("pre_tokenizer") : json(), path),
                         .model = {},
                         .added = {},
                         .raw_finder = {},
                         .normalized_finder = {},
                         .bytes = {},
                         .begin = {},
                         .is_special = {},
                         .has_safe_cuts = false,
                         .leading = {}};
  Vocabulary vocabulary;
  vocabulary.id_of.reserve(raw.words.size());
  for (std::size_t i = 0; i < raw.words.size(); ++i) {
    vocabulary.id_of[raw.words.at(i)] = raw.ids[i];
    vocabulary.ids = std::max<std::int64_t>(vocabulary.ids, raw.ids[i] + 1);
  }
  vocabulary.size = static_cast<std::int64_t>(vocabulary.id_of.size());
  read_merges(raw, vocabulary, path, tables.model);
  read_bytes_and_words(model, raw, vocabulary, path, tables.model);
  tables.added = read_added(raw.rest, vocabulary, path);
  make_finders(tables);
  make_bytes(raw, vocabulary.ids, tables);
  if (raw.rest.contains("post_processor")) add_leading(raw.rest.at("post_processor"), vocabulary.ids, tables.leading);
  tables.has_safe_cuts = tables.splitter.has_safe_cuts() && added_tokens_allow_cuts(tables.added);
  return tables;
}

}  // namespace spillway
