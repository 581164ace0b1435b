#include "trainer/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "memory/base/error.h"
#include "tests/trainer/temporary_directory.h"
#include "tests/trainer/text/tokenizers.h"
#include "trainer/text/tokenizer_added.h"
#include "trainer/text/tokenizer_bpe.h"
#include "trainer/text/tokenizer_normalize.h"
#include "trainer/text/tokenizer_split.h"
#include "trainer/text/tokenizer_unicode.h"
#include "trainer/text/utf8.h"

namespace spillway {
namespace {

using nlohmann::json;

// A copy of a small tokenizer with one part changed.
std::string changed(const TemporaryDirectory& directory, const std::string& name, const std::function<void(json&)>& change) {
  json file = read_json(kTokenizers + name + ".json");
  change(file);
  return directory.file("tokenizer.json", file.dump());
}

TEST(Tokenizer, GivesTheTokensOfTheReference) {
  const json cases = read_json(kTokenizers + "cases.json");
  const auto texts = cases.at("texts").get<std::vector<std::string>>();
  ASSERT_GT(texts.size(), 100U);
  for (const auto& [name, expected] : cases.at("ids").items()) {
    const Tokenizer tokenizer = Tokenizer::load(kTokenizers + name + ".json");
    TokenEncoder encoder(tokenizer);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto ids = expected[i].get<std::vector<std::int32_t>>();
      std::vector<std::int32_t> with_cache;
      encoder.encode(texts[i], with_cache);
      EXPECT_EQ(with_cache, ids) << name << ": " << json(texts[i]).dump();
      EXPECT_EQ(encoded(tokenizer, texts[i]), ids) << name << ": " << json(texts[i]).dump();
    }
  }
}

TEST(Tokenizer, DecodesWhatItEncodes) {
  const json cases = read_json(kTokenizers + "cases.json");
  for (const char* name : {"gpt2", "llama3"}) {  // these have neither NFC nor tokens that strip white space
    const Tokenizer tokenizer = Tokenizer::load(kTokenizers + name + ".json");
    for (const json& text : cases.at("texts"))
      EXPECT_EQ(tokenizer.decode(encoded(tokenizer, text.get<std::string>())), text.get<std::string>());
  }
  // A space and its mark decode to the same; if a space was put before the text, it comes back, too.
  std::string buffer;
  for (const auto& [name, before] : {std::pair("gemma", ""), std::pair("metaspace_never", ""), std::pair("llama2", " ")}) {
    const Tokenizer marked = Tokenizer::load(kTokenizers + name + ".json");
    using namespace std::string_literals;
    for (const std::string& text : {"a"s, "the quick  brown\tfox \n"s, "\xe4\xbd\xa0\xf0\x9f\x99\x82 \xe2\x96\x81 x"s, "q\0z"s})
      EXPECT_EQ(marked.decode(encoded(marked, text)), before + std::string(with_spaces(text, buffer))) << name;
  }
  const Tokenizer tokenizer = Tokenizer::load(kTokenizers + "llama3.json");
  const auto ids = encoded(tokenizer, "<|im_start|>a<|im_end|>");
  EXPECT_EQ(tokenizer.decode(ids), "<|im_start|>a<|im_end|>");
  EXPECT_EQ(tokenizer.decode(ids, SpecialTokens::skip), "a");
  EXPECT_EQ(tokenizer.decode(std::vector<std::int32_t>{-1, 1'000'000}), "");
}

TEST(Tokenizer, TellsWhereEachTokenEnds) {
  const json cases = read_json(kTokenizers + "cases.json");
  std::string buffer, normal;
  for (const auto& [name, ids] : cases.at("ids").items()) {
    const Tokenizer tokenizer = Tokenizer::load(kTokenizers + name + ".json");
    const bool is_exact = !name.starts_with("removed") && !name.starts_with("unknown") && name != "marked_unknown";
    TokenEncoder encoder(tokenizer);
    std::size_t empty = 0, tokens = 0;
    for (std::size_t i = 0; i < cases.at("texts").size(); ++i) {
      const std::string text = cases["texts"][i];
      std::vector<std::int32_t> with_ends;
      std::vector<std::size_t> ends;
      encoder.encode(text, with_ends, ends);
      ASSERT_EQ(with_ends, ids[i].get<std::vector<std::int32_t>>());
      ASSERT_EQ(ends.size(), with_ends.size());
      ASSERT_TRUE(std::ranges::is_sorted(ends)) << name << ": " << json(text).dump();
      if (ends.empty()) continue;
      EXPECT_EQ(is_exact ? ends.back() : text.size(), text.size()) << name << ": " << json(text).dump();
      EXPECT_LE(ends.back(), text.size());
      if (to_nfc(text, normal) != text) continue;  // in the next test
      for (std::size_t t = 0, begin = 0; t < ends.size(); begin = ends[t++]) {
        ++tokens;
        const std::string part(with_spaces(std::string_view(text).substr(begin, ends[t] - begin), buffer));
        const std::string spelled = tokenizer.decode({&with_ends[t], 1});
        empty += part.empty() ? 1 : 0;
        // A space may have been put before, or white space stripped. An added token is spelled in the alphabet of bytes.
        const bool fits =
            part == spelled || " " + part == spelled || part.ends_with(spelled) || tokenizer.added_token_id(part) == with_ends[t];
        EXPECT_TRUE(!is_exact || spelled.starts_with('<') || fits)
            << name << ": " << json(text).dump() << " token " << t << ": " << json(part).dump();
      }
    }
    EXPECT_LT(empty, tokens / 10 + 1) << name;
  }
}

TEST(Tokenizer, TellsWhereTokensEndBehindChangesOfTheText) {
  const auto ends_of = [](const char* name, std::string_view text) {
    const Tokenizer tokenizer = Tokenizer::load(kTokenizers + name + ".json");
    std::vector<std::int32_t> ids;
    std::vector<std::size_t> ends;
    TokenEncoder(tokenizer).encode(text, ids, ends);
    std::vector<std::pair<std::string, std::size_t>> found;
    for (std::size_t i = 0; i < ids.size(); ++i) found.emplace_back(tokenizer.decode({&ids[i], 1}), ends[i]);
    return found;
  };
  using Found = std::vector<std::pair<std::string, std::size_t>>;
  // NFC makes two bytes of three; the ends are in the text as it was given.
  EXPECT_EQ(ends_of("qwen2", "e\u0301<|im_end|>"), (Found{{"\xc3", 1}, {"\xa9", 3}, {"<|im_end|>", 13}}));
  // A mark, three bytes of the text, is one space; the space before the text has no byte in it.
  const Found marked = ends_of("llama2", "q\u2581q<s>");
  ASSERT_FALSE(marked.empty());
  EXPECT_EQ(marked.back(), (std::pair<std::string, std::size_t>("<s>", 8)));
  for (const auto& [token, end] : marked) EXPECT_TRUE(end == 0 || end == 1 || end == 4 || end == 5 || end == 8) << token << end;
}

TEST(Tokenizer, KnowsItsTokens) {
  const Tokenizer tokenizer = Tokenizer::load(kTokenizers + "qwen2.json");
  EXPECT_EQ(tokenizer.end_of_text(), 0);
  EXPECT_EQ(tokenizer.token_id("<|im_start|>"), 420);
  EXPECT_EQ(tokenizer.token_id("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer.vocab_size(), 430);
  EXPECT_EQ(tokenizer.path(), kTokenizers + "qwen2.json");
}

TEST(Tokenizer, LongWordsMergeAsShortOnes) {
  // Encodes every text of the two letters with the heap and with the search: both must make the same merges.
  BpeModel model;
  std::ranges::fill(model.byte_ids, WordTable::kNone);
  model.byte_ids['a'] = 0;
  model.byte_ids['b'] = 1;
  model.merges.reserve(6);
  const std::int32_t rules[6][3] = {{0, 0, 2}, {1, 0, 3}, {2, 1, 4}, {3, 3, 5}, {4, 0, 6}, {2, 2, 7}};
  for (std::uint32_t i = 0; i < 6; ++i) model.merges.insert(rules[i][0], rules[i][1], {i, rules[i][2]});
  BpeEncoder encoder(model);
  std::uint32_t random = 1;
  for (int round = 0; round < 200; ++round) {
    std::string word;
    for (int i = 0; i < 40 + round; ++i) word += (random = random * 1664525U + 1013904223U) >> 31 ? 'a' : 'b';
    std::vector<std::int32_t> naive;
    for (const char c : word) naive.push_back(c - 'a');
    for (;;) {
      std::uint32_t best = MergeTable::kNoRank;
      std::size_t at = 0;
      for (std::size_t i = 0; i + 1 < naive.size(); ++i) {
        const auto merge = model.merges.find(naive[i], naive[i + 1]);
        if (merge.rank < best) best = merge.rank, at = i;
      }
      if (best == MergeTable::kNoRank) break;
      naive[at] = rules[best][2];
      naive.erase(naive.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
    std::vector<std::int32_t> ids;
    encoder.encode(word, ids);
    EXPECT_EQ(ids, naive) << word;
  }
}

TEST(Tokenizer, RefusesOtherKindsByName) {
  const TemporaryDirectory directory;
  const auto refused = [&](const std::function<void(json&)>& change, const std::string& part) {
    const std::string path = changed(directory, "qwen2", change);
    EXPECT_REFUSED(Tokenizer::load(path), InputError, part);
  };
  refused([](json& f) { f["model"]["type"] = "Unigram"; }, "model.type is \"Unigram\"; BPE is allowed");
  refused([](json& f) { f["model"] = {{"type", "WordPiece"}, {"vocab", {{"a", 0}}}}; }, "model.type is \"WordPiece\"");
  refused([](json& f) { f["model"]["dropout"] = 0.1; }, "dropout");
  refused([](json& f) { f["model"]["end_of_word_suffix"] = "</w>"; }, "end_of_word_suffix");
  refused([](json& f) { f["normalizer"] = {{"type", "NFKC"}}; }, "normalizer.type is \"NFKC\"");
  refused([](json& f) { f["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "Lowercase"}}}}}; },
          "normalizer.normalizers[0].type is \"Lowercase\"");
  refused([](json& f) { f["pre_tokenizer"] = {{"type", "Metaspace"}}; }, "pre_tokenizer.replacement is missing");
  refused([](json& f) { f["pre_tokenizer"] = {{"type", "Whitespace"}}; }, "pre_tokenizer.type is \"Whitespace\"");
  refused([](json& f) { f["pre_tokenizer"] = {{"type", "Digits"}}; }, "pre_tokenizer has no ByteLevel");
  refused([](json& f) { f["pre_tokenizer"] = nullptr; }, "pre_tokenizer is null");
  refused([](json& f) { f["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(a"; },
          "is not valid: end pattern with unmatched");
  refused([](json& f) { f["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Odd"; },
          "behavior is \"Odd\"; one of Isolated, Removed");
  refused([](json& f) { f["model"]["merges"].push_back({"a"}); }, "merge ");
  refused([](json& f) { f["model"]["merges"].push_back(3); }, "merge ");
  refused([](json& f) { f["model"]["merges"].push_back({"q", "zzz"}); }, "which the vocabulary lacks");
  refused([](json& f) { f["model"]["vocab"]["zz"] = -1; }, "found the id -1 of \"zz\"");
  refused([](json& f) { f["model"]["vocab"]["zz"] = 4'000'000'000; }, "found the id 4000000000");
  refused([](json& f) { f["model"].erase("vocab"); }, "model.vocab is missing");
  refused([](json& f) { f["added_tokens"][1]["id"] = 7; }, "added_tokens[1].id is 7, but that of \"<|im_start|>\" is");
  refused([](json& f) { f["added_tokens"][1].erase("content"); }, "added_tokens[1].content is missing");
  EXPECT_REFUSED(Tokenizer::load(directory.file("t.json", "{\"model\": ")), InputError, "not valid JSON at byte");
  EXPECT_REFUSED(Tokenizer::load(directory.file("t.json", "[]")), InputError, "the file is []; an object is allowed");
  EXPECT_REFUSED(Tokenizer::load(directory.path() + "/none.json"), InputError, "there is no such file");
}

TEST(Tokenizer, RefusesOddMarksByName) {
  const TemporaryDirectory directory;
  const auto refused = [&](const std::string& name, const std::function<void(json&)>& change, const std::string& part) {
    const std::string path = changed(directory, name, change);
    EXPECT_REFUSED(Tokenizer::load(path), InputError, part);
  };
  refused("llama2", [](json& f) { f["normalizer"]["normalizers"][0]["prepend"] = "_"; }, "prepend is \"_\"; \"\u2581\"");
  refused("llama2", [](json& f) { f["normalizer"]["normalizers"].erase(1); }, "a Prepend without a Replace of spaces");
  refused("llama2", [](json& f) { f["normalizer"]["normalizers"][1]["content"] = "_"; }, "content is \"_\"");
  refused(
      "llama2", [](json& f) { f["normalizer"]["normalizers"][1]["pattern"] = {{"Regex", " "}}; },
      "pattern is an object of 1 keys; {\"String\": \" \"} is allowed");
  refused(
      "llama2", [](json& f) { std::swap(f["normalizer"]["normalizers"][0], f["normalizer"]["normalizers"][1]); },
      "type is Prepend; it comes first, and once");
  refused("llama2", [](json& f) { f["model"]["vocab"].erase("<0x80>"); }, "byte_fallback is true, but the vocabulary lacks");
  refused("llama2", [](json& f) { f["pre_tokenizer"] = {{"type", "ByteLevel"}}; }, "where spaces are marked, Metaspace");
  refused("metaspace_first", [](json& f) { f["pre_tokenizer"]["prepend_scheme"] = "last"; }, "prepend_scheme is \"last\"");
  refused("metaspace_first", [](json& f) { f["pre_tokenizer"]["replacement"] = "_"; }, "replacement is \"_\"");
  refused("marked_unknown", [](json& f) { f["model"]["unk_token"] = "zz"; }, "unk_token is \"zz\", which the vocabulary lacks");
}

TEST(Tokenizer, Utf8IsCheckedToTheByte) {
  EXPECT_EQ(find_invalid_utf8("abc \xc3\xa9 \xe4\xbd\xa0 \xf0\x9f\x99\x82 \xf4\x8f\xbf\xbf"), kValidUtf8);
  for (const std::string_view bad :
       {"\x80", "\xff", "\xc0\xaf", "\xc1\xbf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80", "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80", "\xc3", "\xe4\xbd", "\xf0\x9f\x99", "\xc3(", "\xe4\xbd("}) {
    const std::string text = "0123456789\xc3\xa9" + std::string(bad);
    EXPECT_EQ(find_invalid_utf8(text), 12U) << json(std::vector<int>(bad.begin(), bad.end())).dump();
    EXPECT_EQ(find_invalid_utf8(text + "more of it"), 12U);
  }
  const Tokenizer tokenizer = Tokenizer::load(kTokenizers + "gpt2.json");
  EXPECT_REFUSED(encoded(tokenizer, "ab\xff"), InputError, "found byte 0xff at byte 2, which is not UTF-8");
}

TEST(Tokenizer, NormalisesAsTheReferenceWhoseUnicodeIsOlder) {
  std::string buffer;
  EXPECT_EQ(to_nfc("e\u0301te\u0301", buffer), "\u00e9t\u00e9");
  EXPECT_EQ(to_nfc("a\u0301\u0327", buffer), "\u00e1\u0327");
  // Marks that the reference does not know stay where they are, and no mark moves past them.
  for (const std::string_view text : {"\u0301\u07fd", "a\u1dfc\u1dfa", "e\u1dfa\u0301", "\u0327\U00010d24", "\U0001e08f\u0327"})
    EXPECT_EQ(to_nfc(text, buffer), text) << json(std::string(text)).dump();
  EXPECT_EQ(to_nfc("e\u0301\u1dfa\u0301\u0327", buffer), "\u00e9\u1dfa\u0327\u0301");
  EXPECT_EQ(to_nfc("\U00011935\U00011930", buffer), "\U00011935\U00011930");
}

TEST(Tokenizer, KnowsTheCharactersOfUnicode16) {
  for (const std::int32_t c : {0x897, 0x1c89, 0x10d69, 0x13bb4, 0x2ebf0}) EXPECT_TRUE(is_word(c)) << c;
  for (const std::int32_t c : {0x1b4e, 0x10d8e, 0x1fae9}) EXPECT_FALSE(is_word(c)) << c;
  const auto words_of = [](const json& pre_tokenizer, std::string_view text) {
    const Splitter splitter(JsonPlace(pre_tokenizer, "here"), false, "here");
    SplitScratch scratch = splitter.scratch();
    std::vector<std::string> words;
    splitter.split(text, true, scratch, [&](std::string_view word, std::ptrdiff_t) { words.emplace_back(word); });
    return words;
  };
  const json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", true}};
  const json digits = {{"type", "Digits"}, {"individual_digits", true}};
  using testing::ElementsAre;
  EXPECT_THAT(words_of(byte_level, "\U00013bb4b!"), ElementsAre(" \U00013bb4b", "!"));
  EXPECT_THAT(words_of({{"type", "Sequence"}, {"pretokenizers", {digits, byte_level}}}, "\U00016d71\r"),
              ElementsAre(" \U00016d71", " \r"));
  const json punctuation = {{"type", "Split"}, {"pattern", {{"Regex", "\\p{P}|\\p{S}|\\p{M}"}}}, {"behavior", "Isolated"}};
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  EXPECT_THAT(words_of({{"type", "Sequence"}, {"pretokenizers", {punctuation, bytes}}}, "a\U00011f4cb\U0001fae9c\u0897d"),
              ElementsAre("a", "\U00011f4c", "b", "\U0001fae9", "c", "\u0897", "d"));
}

TEST(Tokenizer, AddedTokensOfWhiteSpaceTakeItOnce) {
  const auto ids_in = [](const std::vector<AddedToken>& tokens, std::string_view text) {
    std::vector<std::string> contents;
    for (const AddedToken& token : tokens) contents.push_back(token.content);
    std::vector<std::int32_t> ids;
    AddedTokenFinder(tokens, contents)
        .split(text, [&](std::string_view) { ids.push_back(-1); }, [&](std::int32_t id, std::size_t) { ids.push_back(id); });
    return ids;
  };
  using testing::ElementsAre;
  const AddedToken both = {.content = "  ", .id = 7, .strips_left = true, .strips_right = true};
  EXPECT_THAT(ids_in({both}, "    "), ElementsAre(7));
  EXPECT_THAT(ids_in({both}, "a      b    "), ElementsAre(-1, 7, -1, 7));
  // A token that strips nothing to its left is found even inside white space that the token before it stripped; the reference
  // does the same.
  const AddedToken right = {.content = "0", .id = 8, .strips_right = true}, none = {.content = "  ", .id = 9};
  EXPECT_THAT(ids_in({right, none}, "0   x"), ElementsAre(8, 9, -1));
}

}  // namespace
}  // namespace spillway
