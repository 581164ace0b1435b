// Data as they lie there: the same sequences from every form of a file, rows that are held back, and other names of keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "memory/base/error.h"
#include "tests/trainer/data/forms/compressed.h"
#include "tests/trainer/temporary_directory.h"
#include "trainer/data/data.h"
#include "trainer/data/held_back.h"

namespace spillway {
namespace {

using testing::HasSubstr;

DataRequest request_of(std::vector<std::string> paths, std::int64_t seq_length = 16) {
  DataRequest request;
  request.paths = std::move(paths);
  request.tokenizer = "bytes";
  request.order = DataOrder::sequential;
  request.seq_length = seq_length;
  request.vocabulary = 1000;
  return request;
}

// The tokens of every sequence, in order, without padding.
std::vector<std::string> texts_of(BatchSampler& data, const DataRequest& request) {
  std::vector<std::string> texts;
  const auto T = static_cast<std::size_t>(request.seq_length);
  for (std::int64_t i = 0; i < data.sequences(); ++i) {
    std::vector<std::int32_t> tokens(T), targets(T), documents(T);
    data.fill(i, 0, tokens, targets, documents);
    std::string text;
    for (const std::int32_t token : tokens) text += token == 0 ? "" : std::string(1, static_cast<char>(token));
    texts.push_back(text);
  }
  return texts;
}
std::vector<std::string> texts_of(const DataRequest& request) {
  BatchSampler data(request);
  return texts_of(data, request);
}

std::string rows(int count, const std::string& before = "", const std::string& between = "\n", const std::string& after = "\n") {
  std::string text = before;
  for (int i = 0; i < count; ++i)
    text +=
        (i == 0 ? "" : between) + R"({"id": )" + std::to_string(i) + R"(, "text": "row )" + std::to_string(100 + i) + R"(!"})";
  return text + after;
}

TEST(DataForms, EveryFormHasTheSameRows) {
  const TemporaryDirectory directory;
  const std::string lines = rows(40), array = rows(40, "[\n ", ",\n ", "\n]\n");
  const std::vector<std::string> expected = texts_of(request_of({directory.file("a.jsonl", lines)}));
  ASSERT_EQ(expected.size(), 40U);
  EXPECT_EQ(expected[7], "row 107");  // the last byte of a row is a target alone
  for (const std::string& path :
       {directory.file("b.ndjson", lines), directory.file("c.jsonl.gz", gzipped(lines)), directory.file("d.json", array),
        directory.file("e.jsonl.zst", zstandard(lines)), directory.file("f.json.gz", gzipped(array)),
        directory.file("g.json.zst", zstandard(array)), directory.file("h.json", lines)})
    EXPECT_EQ(texts_of(request_of({path})), expected) << path;
}

TEST(DataForms, TextAndTokensMayBeCompressed) {
  const TemporaryDirectory directory;
  const std::string text = "some text that is long enough for a few windows of tokens";
  const std::vector<std::string> expected = texts_of(request_of({directory.file("a.txt", text)}));
  ASSERT_EQ(expected.size(), 3U);
  EXPECT_EQ(texts_of(request_of({directory.file("a.txt.gz", gzipped(text))})), expected);
  EXPECT_EQ(texts_of(request_of({directory.file("a.txt.zst", zstandard(text))})), expected);
  std::string raw;
  for (const char c : text) raw += std::string{c, '\0'};
  DataRequest request = request_of({directory.file("a.raw.gz", gzipped(raw))});
  request.format = DataFormat::u16;
  EXPECT_EQ(texts_of(request), expected);
  request = request_of({directory.file("b.bin.gz", gzipped("no header"))});
  EXPECT_REFUSED(BatchSampler{request}, InputError, "b.bin.gz: found 9 bytes, allowed: a header");
}

TEST(DataForms, BadRowsAreNamedByTheirNumber) {
  const TemporaryDirectory directory;
  const std::string array = R"([{"text": "first row"}, [1], {"text": "third row"}, {"text": 5}])";
  DataRequest request = request_of({directory.file("a.json", array)});
  EXPECT_REFUSED(BatchSampler{request}, InputError, "a.json row 2: found an array, allowed: an object");
  request.skip_bad_lines = true;
  EXPECT_EQ(texts_of(request), (std::vector<std::string>{"first ro", "third ro"}));
  EXPECT_THAT(BatchSampler(request).summary(), HasSubstr("2 bad lines left out, the first: "));
}

TEST(DataForms, DirectoriesTakeCompressedRowsOnce) {
  const TemporaryDirectory directory;
  (void)directory.file("a.jsonl.gz", gzipped(rows(3)));
  (void)directory.file("b.ndjson", rows(2));
  (void)directory.file("settings.json", "{}");
  EXPECT_EQ(BatchSampler(request_of({directory.path()})).sequences(), 5);
  (void)directory.file("a.jsonl", rows(3));
  EXPECT_REFUSED(BatchSampler{request_of({directory.path()})}, InputError, "a.jsonl.gz, allowed: one of them in a directory");
  const TemporaryDirectory tables;
  (void)tables.file("train.parquet", "PAR1");
  EXPECT_REFUSED(BatchSampler{request_of({tables.path()})}, InputError, "train.parquet, a table, allowed");
}

// --- rows that are held back ---

std::set<std::string> set_of(const std::vector<std::string>& texts) { return {texts.begin(), texts.end()}; }

DataRequest held_back_of(DataRequest request) {
  request.is_held_back = true;
  request.order = DataOrder::sequential;
  return request;
}

TEST(DataForms, HeldBackRowsAreTheSameWhateverElseChanges) {
  const TemporaryDirectory directory;
  DataRequest request = request_of({directory.file("a.jsonl", rows(100)), directory.file("b.json", rows(50, "[", ",", "]"))});
  request.split = EvalSplit{.share = 0.1};
  request.seed = 5;
  const std::set<std::string> held = set_of(texts_of(held_back_of(request)));
  ASSERT_EQ(texts_of(held_back_of(request)).size(), 15U);
  const auto check = [&](const DataRequest& changed) {
    BatchSampler trained(changed);
    const DataRequest evaluation = held_back_of(changed);
    BatchSampler evaluated(evaluation, trained);
    std::int64_t rows = 0;
    for (const std::string& text : texts_of(evaluated, evaluation)) rows += std::ranges::count(text, 'w');
    EXPECT_EQ(rows, 15);
    if (!changed.packing) {
      EXPECT_EQ(set_of(texts_of(evaluated, evaluation)), held);
    }
    rows = 0;
    for (const std::string& text : texts_of(trained, changed)) rows += std::ranges::count(text, 'w');
    EXPECT_EQ(rows, 135);
    EXPECT_THAT(trained.summary(), HasSubstr("15 rows held back by --eval-split"));
  };
  check(request);
  for (const auto change : {+[](DataRequest& r) { r.order = DataOrder::shuffled; }, +[](DataRequest& r) { r.packing = true; },
                            +[](DataRequest& r) { r.drop_last = true; }, +[](DataRequest& r) { r.threads = 3; },
                            +[](DataRequest& r) { r.truncate = true; }, +[](DataRequest& r) { r.seq_length = 40; },
                            +[](DataRequest& r) { r.skip_bad_lines = true; }}) {
    DataRequest changed = request;
    change(changed);
    check(changed);
  }
  request.seed = 6;
  EXPECT_NE(set_of(texts_of(held_back_of(request))), held);
}

// 40 rows, every fourth too long for short sequences.
TEST(DataForms, RowsThatAreLeftOutMoveNoOther) {
  const TemporaryDirectory directory;
  std::string text;
  for (int i = 0; i < 40; ++i)
    text += R"({"text": "row )" + std::to_string(100 + i) + (i % 4 == 0 ? std::string(30, 'x') : "!") + "\"}\n";
  DataRequest request = request_of({directory.file("a.jsonl", text)}, 64);
  request.split = EvalSplit{.rows = 12};
  const auto heads = [](const DataRequest& of) {
    std::set<std::string> set;
    for (const std::string& one : texts_of(of)) set.insert(one.substr(0, 7));
    return set;
  };
  const std::set<std::string> trained = heads(request), held = heads(held_back_of(request));
  EXPECT_EQ(held.size(), 12U);
  EXPECT_EQ(trained.size(), 28U);
  request.seq_length = 16;
  request.truncate = true;
  EXPECT_EQ(heads(request), trained);
  EXPECT_EQ(heads(held_back_of(request)), held);
  request.truncate = false;
  request.skip_bad_lines = true;
  const std::set<std::string> fewer = heads(request), fewer_held = heads(held_back_of(request));
  EXPECT_EQ(fewer.size() + fewer_held.size(), 30U);
  EXPECT_TRUE(std::ranges::includes(trained, fewer));
  EXPECT_TRUE(std::ranges::includes(held, fewer_held));
}

TEST(DataForms, ASplitThatLeavesNothingIsRefused) {
  const TemporaryDirectory directory;
  DataRequest request = request_of({directory.file("a.jsonl", rows(10))});
  const auto refused = [&](EvalSplit split, const char* part) {
    request.split = split;
    EXPECT_REFUSED(BatchSampler{request}, InputError, part);
    EXPECT_REFUSED(BatchSampler{held_back_of(request)}, InputError, part);
  };
  refused({.rows = 10}, "--eval-split: found 10, which holds back all of the 10 rows of --data");
  refused({.rows = 1000}, "holds back all of");
  refused({.share = 0.01}, "--eval-split: found 0.01, which holds back none of the 10 rows of --data");
  refused({.share = 0.99}, "holds back all of");
  request.split = EvalSplit{.rows = 1};
  request.paths.push_back(directory.file("b.txt", "some text that is long enough"));
  EXPECT_REFUSED(BatchSampler{request}, InputError, "b.txt, which has no rows, allowed: where all data are rows");
  // Two rows, of which one is bad: one side is empty.
  request.paths = {directory.file("c.jsonl", "{\"text\": \"good\"}\n{\"text\": 5}\n")};
  request.skip_bad_lines = true;
  int refusals = 0;
  for (const bool held : {false, true}) {
    request.is_held_back = held;
    try {
      (void)BatchSampler(request);
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr("which leaves no row"));
      ++refusals;
    }
  }
  EXPECT_EQ(refusals, 1);
}

TEST(DataForms, ManyRowsAreHeldBackEvenly) {
  const std::vector<bool> held = rows_held_back({.share = 0.1}, 100'000, 3);
  EXPECT_EQ(std::ranges::count(held, true), 10'000);
  for (int tenth = 0; tenth < 10; ++tenth)
    EXPECT_NEAR(std::count(held.begin() + tenth * 10'000, held.begin() + (tenth + 1) * 10'000, true), 1000, 150);
}

// --- other names of keys ---

DataColumns columns_of(const std::string& text) { return DataColumns(FlagValue("--data-columns", {text})); }

TEST(DataForms, ColumnsName) {
  const TemporaryDirectory directory;
  const auto texts = [&](const std::string& row, const std::string& columns) {
    DataRequest request = request_of({directory.file("a.jsonl", row + "\n")}, 32);
    request.train_on = TrainOn::all;
    request.columns = columns_of(columns);
    return texts_of(request).at(0);
  };
  EXPECT_EQ(texts(R"({"body": "abc."})", "text=body"), "abc");
  EXPECT_EQ(texts(R"({"q": "ask ", "a": "answer."})", "prompt=q,completion=a"), "ask answer");
  // One key of a shape has its own name.
  EXPECT_EQ(texts(R"({"prompt": "ask ", "a": "answer."})", "completion=a"), "ask answer");
  // Keys of other shapes do not count, nor the key that has another name.
  EXPECT_EQ(texts(R"({"text": 5, "messages": [], "body": "abc."})", "text=body"), "abc");
  EXPECT_EQ(texts(R"({"chosen": "abc.", "rejected": "x"})", "text=chosen"), "abc");
  EXPECT_EQ(texts(R"({"ids": [65, 66, 67], "labels": "other"})", "input_ids=ids,labels=marks"), "AB");
  // Two keys change places.
  EXPECT_EQ(texts(R"({"prompt": "answer.", "completion": "ask "})", "prompt=completion,completion=prompt"), "ask answer");
}

TEST(DataForms, ColumnsThatNoRowHasAreRefused) {
  const TemporaryDirectory directory;
  DataRequest request = request_of({directory.file("a.jsonl", rows(3))});
  request.columns = columns_of("messages=chat");
  EXPECT_REFUSED(BatchSampler{request}, InputError,
                 "line 1: found no \"chat\" in the row, allowed: rows that have it, as --data-columns messages=chat says");
  request.skip_bad_lines = true;
  EXPECT_REFUSED(BatchSampler{request}, InputError, "found too few tokens");
  request.columns = columns_of("prompt=text,completion=answer");
  request.skip_bad_lines = false;
  EXPECT_REFUSED(BatchSampler{request}, InputError, "found no \"answer\" in the row");
  request.columns = columns_of("text=id");
  EXPECT_REFUSED(BatchSampler{request}, InputError, "\"id\" is a number, allowed: a string");
}

}  // namespace
}  // namespace spillway
