#include "trainer/data/unread_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "memory/base/error.h"
#include "tests/trainer/temporary_directory.h"
#include "trainer/data/data.h"

namespace spillway {
namespace {

std::string mended(const std::string& line) {
  const auto reads = [](std::string_view key, const std::vector<std::string_view>&) { return key == "text"; };
  return with_unread_values_mended(line, reads).value_or("");
}

TEST(UnreadValues, AreMendedWithoutMovingAByte) {
  EXPECT_EQ(mended(R"({"a": NaN, "text": "x"})"), R"({"a": 0  , "text": "x"})");
  EXPECT_EQ(mended(R"({"a": [-Infinity, {"b": Infinity}]})"), R"({"a": [0        , {"b": 0       }]})");
  EXPECT_EQ(mended(R"({"a": "\ud800x\ude00\ud83d\ude00"})"), R"({"a": "\ufffdx\ufffd\ud83d\ude00"})");
  EXPECT_EQ(mended(R"({"a\ud800": 1})"), R"({"a\ufffd": 1})");
  EXPECT_EQ(mended(R"({"a": {"text": "\udc00"}})"), R"({"a": {"text": "\ufffd"}})") << "a key within another";
  for (const char* const nothing : {R"({"text": NaN})", R"({"text": "\ud800"})", R"({"a": "NaN \\ud800"})", "", "NaN", "{",
                                    R"({"a": 1, "b": "\ud83d\ude00"})"})
    EXPECT_EQ(mended(nothing), "") << nothing;
}

DataRequest request_of(const std::string& path) {
  DataRequest request;
  request.paths = {path};
  request.tokenizer = "bytes";
  request.order = DataOrder::sequential;
  request.seq_length = 4;
  request.vocabulary = 256;
  return request;
}

TEST(UnreadValues, DoNotCostTheirRow) {
  const TemporaryDirectory directory;
  const std::string rows =
      "{\"score\": NaN, \"input_ids\": [1, 2, 3]}\n{\"input_ids\": [1, 2], \"meta\": {\"s\": \"\\ud800\", \"x\": -Infinity}}\n"
      "{\"text\": \"ab\", \"p\": Infinity}\n{\"input_ids\": [1, 2], \"title\": \"\\ud800\"}\n";
  BatchSampler sampler(request_of(directory.file("r.jsonl", rows)));
  EXPECT_EQ(sampler.sequences(), 4);
  std::vector<std::int32_t> tokens(4), targets(4);
  sampler.fill(2, 0, tokens, targets);
  EXPECT_EQ(tokens[0], 'a');
  for (const char* const row : {"{\"input_ids\": [1, NaN]}", "{\"text\": \"a\\ud800\"}", "{\"text\": NaN}",
                                "{\"a\": NAN, \"text\": \"b\"}", "{\"input_ids\": [1], \"labels\": [Infinity]}"})
    EXPECT_REFUSED(BatchSampler{request_of(directory.file("b.jsonl", row))}, InputError, "b.jsonl line 1: not valid JSON");
}

TEST(TextFiles, AMarkOfTheByteOrderIsNoText) {
  const TemporaryDirectory directory;
  BatchSampler sampler(request_of(directory.file("a.txt",
                                                 "\xef\xbb\xbf"
                                                 "abcdefghij")));
  EXPECT_EQ(sampler.sequences(), 2);
  std::vector<std::int32_t> tokens(4), targets(4);
  sampler.fill(0, 0, tokens, targets);
  EXPECT_EQ(tokens, (std::vector<std::int32_t>{'a', 'b', 'c', 'd'}));
  sampler.fill(1, 0, tokens, targets);
  EXPECT_EQ(targets, (std::vector<std::int32_t>{'f', 'g', 'h', 'i'}));
}

TEST(TextFiles, WhatIsLeftOutIsSaid) {
  const TemporaryDirectory directory;
  DataRequest request = request_of(directory.file("a.txt", "abcdefghij"));  // abcde, efghi
  request.paths.push_back(directory.file("b.txt", "abc"));
  EXPECT_THAT(BatchSampler(request).summary(),
              testing::HasSubstr("1 file too short for one sequence; 4 tokens at the ends of files left out"));
  request.paths = {directory.file("c.txt", "abcdefghi")};
  EXPECT_THAT(BatchSampler(request).summary(), testing::Not(testing::HasSubstr("left out")));
}

}  // namespace
}  // namespace spillway
