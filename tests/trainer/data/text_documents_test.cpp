#include "trainer/data/text_documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "memory/base/error.h"
#include "memory/base/parallel.h"
#include "tests/trainer/temporary_directory.h"
#include "tests/trainer/text/tokenizers.h"
#include "trainer/data/data.h"
#include "trainer/data/token_file.h"

namespace spillway {
namespace {

using nlohmann::json;

// A text of many lines, and of bare words, that can be cut into stretches.
std::string long_text(std::size_t bytes) {
  const json cases = read_json(kTokenizers + "cases.json");
  std::string text;
  std::uint32_t random = 5;
  while (text.size() < bytes) {
    random = random * 1664525U + 1013904223U;
    text += cases["texts"][(random >> 8) % cases["texts"].size()].get<std::string>();
    if (random >> 30 == 0) text += "\nline of it";
    if (random >> 30 == 1) text += "some words and more";
  }
  return text;
}

TEST(TextDocuments, PartsHaveTheTokensOfTheWhole) {
  const std::string text = long_text(6 << 20);
  const TemporaryDirectory directory;
  const std::string path = directory.file("long", text);
  for (const char* name : {"gpt2", "llama3", "qwen2", "smollm2", "prefix_space", "removed", "llama2", "gemma", "metaspace_first",
                           "metaspace_always", "marked_unknown", "marked_inside"}) {
    const Tokenizer tokenizer = Tokenizer::load(kTokenizers + name + ".json");
    const std::vector<std::int32_t> whole = encoded(tokenizer, text);
    for (const int threads : {1, 3}) {
      const ThreadPool pool(threads);
      std::vector<std::int32_t> parts;
      int ends = 0;
      const TextTools tools(kTokenizers + name + ".json");
      DocumentReader reader(tools, RowRules(), pool, BadLines::refuse);
      reader.read(
          path,
          [&](const DocumentPart& part) {
            parts.insert(parts.end(), part.tokens.begin(), part.tokens.end());
            ends += part.ends_document ? 1 : 0;
          },
          [](const DocumentCounts&) {});
      const DocumentCounts& counts = reader.counts();
      EXPECT_EQ(ends, 1);
      EXPECT_EQ(counts.tokens, static_cast<std::int64_t>(whole.size()));
      EXPECT_EQ(counts.bytes, static_cast<Bytes>(text.size()));
      EXPECT_TRUE(parts == whole) << name;
    }
  }
  const Tokenizer gpt2 = Tokenizer::load(kTokenizers + "gpt2.json");
  EXPECT_NE(gpt2.last_cut("a word"), std::string::npos);  // otherwise the test above would cut nothing
  for (const char* name : {"prefix_space", "marked_inside"})
    EXPECT_EQ(Tokenizer::load(kTokenizers + name + ".json").last_cut("a word"), std::string::npos) << name;
  for (const char* name : {"llama2", "gemma", "metaspace_first", "metaspace_always"})
    EXPECT_EQ(Tokenizer::load(kTokenizers + name + ".json").last_cut("x\na word"), 3U) << name;
}

DocumentCounts count(const std::string& path, BadLines bad_lines, std::vector<std::vector<std::int32_t>>* documents = nullptr) {
  const TextTools tools(kTokenizers + "llama3.json");
  const ThreadPool pool(2);
  DocumentReader reader(tools, RowRules(), pool, bad_lines);
  std::vector<std::int32_t> open;
  reader.read(
      path,
      [&](const DocumentPart& part) {
        open.insert(open.end(), part.tokens.begin(), part.tokens.end());
        if (!part.ends_document) return;
        if (documents) documents->push_back(open);
        open.clear();
      },
      [](const DocumentCounts&) {});
  return reader.counts();
}

TEST(TextDocuments, RowsOfJsonl) {
  const TemporaryDirectory directory;
  std::string rows;
  std::vector<std::string> texts;
  for (int i = 0; i < 20'000; ++i) {
    texts.push_back(i % 7 == 0 ? "" : "row " + std::to_string(i) + std::string(static_cast<std::size_t>(i % 300), 'x'));
    rows += json({{"id", i}, {"text", texts.back()}, {"meta", {{"text", "inner"}}}}).dump() + (i % 3 == 0 ? "\r\n" : "\n");
    if (i % 10 == 0) rows += "\n";
  }
  std::vector<std::vector<std::int32_t>> documents;
  const DocumentCounts counts = count(directory.file("r.jsonl", rows), BadLines::refuse, &documents);
  ASSERT_EQ(documents.size(), texts.size());
  EXPECT_EQ(counts.documents, 20'000);
  EXPECT_EQ(counts.empty_documents, 2858);
  const Tokenizer tokenizer = Tokenizer::load(kTokenizers + "llama3.json");
  for (std::size_t i = 0; i < texts.size(); i += 97) EXPECT_EQ(documents[i], encoded(tokenizer, texts[i]));
}

TEST(TextDocuments, AMarkOfTheByteOrderIsNoText) {
  const TemporaryDirectory directory;
  std::vector<std::vector<std::int32_t>> with, without;
  count(directory.file("a.txt", "\xef\xbb\xbf some words"), BadLines::refuse, &with);
  count(directory.file("b.txt", " some words"), BadLines::refuse, &without);
  EXPECT_EQ(with, without);
}

TEST(TextDocuments, ATemplateThatIsWrongIsNoFaultOfARow) {
  const TemporaryDirectory directory;
  const std::string tokenizer = directory.file("tokenizer.json", kSmallTokenizer);
  std::string rows;
  for (int i = 0; i < 20'000; ++i) rows += "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n";
  const std::string path = directory.file("r.jsonl", rows);
  for (const std::string broken : {"", "{% include 'x' %}", "{% for a in messages recursive %}{% endfor %}"}) {
    if (!broken.empty()) directory.file("chat_template.jinja", broken);
    for (const BadLines bad_lines : {BadLines::refuse, BadLines::skip}) {
      try {
        const TextTools tools(tokenizer);
        const ThreadPool pool(2);
        DocumentReader(tools, RowRules(), pool, bad_lines).read(path, [](const DocumentPart&) {}, [](const DocumentCounts&) {});
        ADD_FAILURE() << "not refused: " << broken;
      } catch (const InputError& error) {
        EXPECT_EQ(error.help().find("skip-bad-lines"), std::string::npos);
      }
    }
  }
}

TEST(TextDocuments, BadLinesAreNamedOrCounted) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"{\"text\": \"a", "not valid JSON at byte"},
      {"{\"text\": \"a\xff\"}", "not valid JSON at byte"},
      {"{\"text\": 3}", "\"text\" is a number"},
      {"{\"text\": [\"a\"]}", "\"text\" is an array"},
      {"{\"text\": {}}", "\"text\" is an object"},
      {"{\"texts\": \"a\"}", "found neither \"input_ids\" nor \"text\""},
      {"[1]", "found an array"},
      {"{\"text\": \"a\", \"text\": \"b\"}", "found \"text\" twice"},
      {"{\"text\": \"\\ud800\"}", "not valid JSON at byte"},
      {std::string("{\"text\": \"a\"}\0", 14), "not valid JSON at byte 14"},
      {"{\"text\": \"a\"} x", "not valid JSON at byte"},
      {"\"text\"", "found a string"},
  };
  const TemporaryDirectory directory;
  for (const auto& [row, part] : bad) {
    const std::string path = directory.file("r.jsonl", "{\"text\": \"a\"}\n\n" + row + "\n{\"text\": \"b\"}\n");
    EXPECT_REFUSED(count(path, BadLines::refuse), InputError, "r.jsonl line 3: ");
    EXPECT_REFUSED(count(path, BadLines::refuse), InputError, part);
    const DocumentCounts counts = count(path, BadLines::skip);
    EXPECT_EQ(counts.documents, 2);
    EXPECT_EQ(counts.bad_lines, 1);
    EXPECT_THAT(counts.first_bad_line, testing::HasSubstr(part));
  }
}

TEST(TextDocuments, WhatTextCannotBe) {
  const TemporaryDirectory directory;
  std::string text(5'000'000, 'w');
  for (std::size_t i = 0; i < text.size(); i += 6) text[i] = ' ';
  text[4'999'998] = '\xff';
  EXPECT_REFUSED(count(directory.file("t.txt", text), BadLines::skip), InputError, "t.txt: found byte 0xff at byte 4999998");
  EXPECT_EQ(count(directory.file("t.txt", std::string(100, '\0')), BadLines::refuse).tokens, 100);
  EXPECT_EQ(count(directory.file("t.txt", ""), BadLines::refuse).empty_documents, 1);
  EXPECT_REFUSED(count(directory.file("t.txt", std::string(65 << 20, 'x')), BadLines::refuse), InputError, "cannot be cut");
}

TEST(TextDocuments, LinesWithoutAnEndAreNamedOrLeftOut) {
  const TemporaryDirectory directory;
  const std::string endless = directory.file("e.jsonl", std::string(65 << 20, 'x'));
  EXPECT_REFUSED(count(endless, BadLines::refuse), InputError, "e.jsonl line 1: longer than");
  EXPECT_EQ(count(endless, BadLines::skip).bad_lines, 1);
  const std::string row = "{\"text\": \"a\"}\n";
  const std::string path = directory.file("t.jsonl", row + std::string(150 << 20, 'x') + "\n" + row + "no\n" + row);
  const DocumentCounts counts = count(path, BadLines::skip);
  EXPECT_EQ(counts.documents, 3);
  EXPECT_EQ(counts.bad_lines, 2);
  EXPECT_EQ(counts.bytes, static_cast<Bytes>(std::filesystem::file_size(path)));
  EXPECT_THAT(counts.first_bad_line, testing::HasSubstr("t.jsonl line 2: longer than"));
}

TEST(TokenFile, IsThereWholeOrNotAtAll) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/t.bin";
  {
    TokenFileWriter writer(path, TokenWidth::u16);
    writer.write(std::vector<std::int32_t>{1, 65535});
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  for (const TokenWidth width : {TokenWidth::u16, TokenWidth::u32}) {
    TokenFileWriter writer(path, width);
    writer.write(std::vector<std::int32_t>{1, 65535});
    writer.write(std::vector<std::int32_t>{7});
    writer.finish();
    DataRequest request;
    request.paths = {path};
    request.seq_length = 2;
    request.vocabulary = 65536;
    request.order = DataOrder::sequential;
    BatchSampler sampler(request);
    std::vector<std::int32_t> tokens(2), targets(2);
    sampler.fill(0, 0, tokens, targets);
    EXPECT_EQ(tokens, (std::vector<std::int32_t>{1, 65535}));
    EXPECT_EQ(targets, (std::vector<std::int32_t>{65535, 7}));
    EXPECT_EQ(std::filesystem::file_size(path), 1024U + 3 * static_cast<std::size_t>(width));
  }
}

TEST(Data, TextIsTokenized) {
  const TemporaryDirectory directory;
  const Tokenizer tokenizer = Tokenizer::load(kTokenizers + "llama3.json");
  const std::string text = "The quick brown fox, 12345 times.\nAnd again?";
  const std::vector<std::int32_t> ids = encoded(tokenizer, text);
  DataRequest request;
  request.seq_length = static_cast<std::int64_t>(ids.size()) - 1;
  request.vocabulary = 512;
  request.tokenizer = kTokenizers + "llama3.json";
  request.text_ends = TextEnds::none;
  request.order = DataOrder::sequential;
  for (const std::string& path : {directory.file("t.txt", text), directory.file("t.jsonl", json({{"text", text}}).dump())}) {
    request.paths = {path};
    BatchSampler sampler(request);
    EXPECT_EQ(sampler.sequences(), 1);
    std::vector<std::int32_t> tokens(ids.size() - 1), targets(ids.size() - 1);
    sampler.fill(0, 0, tokens, targets);
    EXPECT_EQ(tokens, std::vector<std::int32_t>(ids.begin(), ids.end() - 1)) << path;
    EXPECT_EQ(targets, std::vector<std::int32_t>(ids.begin() + 1, ids.end())) << path;
  }
  request.vocabulary = 300;
  EXPECT_REFUSED(BatchSampler{request}, InputError,
                 "found token 400 in \"text\", allowed: below 300, the vocabulary of the model");
  request.paths = {directory.file("t.txt", text)};
  EXPECT_REFUSED(BatchSampler{request}, InputError, "makes token 400 of, allowed: below 300, the vocabulary of the model");
}

}  // namespace
}  // namespace spillway
