// Faults of tokenizers and templates, which rows are read with, and of their ids.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "memory/base/error.h"
#include "tests/trainer/temporary_directory.h"
#include "tests/trainer/text/tokenizers.h"
#include "trainer/data/data.h"

namespace spillway {
namespace {

DataRequest request_of(std::vector<std::string> paths, std::int64_t seq_length, std::int64_t vocabulary = 256) {
  DataRequest request;
  request.paths = std::move(paths);
  request.order = DataOrder::sequential;
  request.seq_length = seq_length;
  request.vocabulary = vocabulary;
  return request;
}

// Expects one error, however bad lines are treated, that does not offer to skip rows.
void expect_resource_refused(const DataRequest& asked, const std::string& part) {
  for (const bool skips : {false, true}) {
    DataRequest request = asked;
    request.skip_bad_lines = skips;
    try {
      BatchSampler{request};
      ADD_FAILURE() << "not refused: " << part;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(part));
      EXPECT_THAT(error.help(), testing::Not(testing::HasSubstr("skip-bad-lines")));
    }
  }
}

TEST(DataResources, WhatIsWrongWithATokenizerIsNoFaultOfARow) {
  const TemporaryDirectory directory;
  const std::string rows = "{\"input_ids\": [1, 2]}\n{\"text\": \"ab\"}\n{\"text\": \"ba\"}\n";
  DataRequest request = request_of({directory.file("r.jsonl", rows)}, 4);
  request.tokenizer = directory.file("tokenizer.json", "{\"model\": {\"type\": \"Unigram\"}}");
  expect_resource_refused(request, "BPE is allowed");
  request.tokenizer = directory.file("tokenizer.json", "{");
  expect_resource_refused(request, "not valid JSON");
  request.tokenizer = directory.path() + "/none.json";
  expect_resource_refused(request, "--tokenizer: found");
  // A row of ids needs no tokenizer.
  request.paths = {directory.file("r.jsonl", "{\"input_ids\": [1, 2]}\n")};
  EXPECT_EQ(BatchSampler(request).sequences(), 1);
}

TEST(DataResources, WhatIsWrongWithATemplateIsNoFaultOfARow) {
  const TemporaryDirectory directory;
  const std::string row = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n";
  DataRequest request = request_of({directory.file("r.jsonl", row + row)}, 4);
  request.tokenizer = directory.file("tokenizer.json", kSmallTokenizer);
  expect_resource_refused(request, "found no chat template");
  directory.file("chat_template.jinja", "{% include 'x' %}");
  expect_resource_refused(request, "chat_template.jinja");
  directory.file("chat_template.jinja", "{% if messages[0].content == 'a' %}{% include 'x' %}{% endif %}ab");
  expect_resource_refused(request, "include");
  // A complaint of the template about a row is the row's fault.
  directory.file("chat_template.jinja", "{% if messages[0].content == 'a' %}{{ raise_exception('no a') }}{% endif %}abababab");
  request.train_on = TrainOn::all;
  EXPECT_REFUSED(BatchSampler{request}, InputError, "r.jsonl line 1: ");
  request.skip_bad_lines = true;
  request.paths = {directory.file("r.jsonl", row + "{\"messages\": [{\"role\": \"user\", \"content\": \"b\"}]}\n")};
  EXPECT_EQ(BatchSampler(request).sequences(), 1);
}

TEST(DataResources, IdsOfTextAreCheckedWhereTheyOccur) {
  const TemporaryDirectory directory;
  DataRequest request = request_of({directory.file("r.jsonl", "{\"text\": \"abababab\"}\n{\"text\": \"a</s>\"}\n")}, 4, 4);
  request.tokenizer = directory.file("tokenizer.json", kSmallTokenizer);
  request.text_ends = TextEnds::none;
  EXPECT_REFUSED(BatchSampler{request}, InputError, "r.jsonl line 2: found token 4 in \"text\", allowed: below 4");
  request.skip_bad_lines = true;
  EXPECT_EQ(BatchSampler(request).sequences(), 1);
  request.paths = {directory.file("a.txt", "abababababab")};
  EXPECT_GT(BatchSampler(request).sequences(), 0);
  request.paths = {directory.file("b.txt", "abababababab</s>")};
  EXPECT_REFUSED(BatchSampler{request}, InputError, "b.txt: found text that " + directory.path());
}

}  // namespace
}  // namespace spillway
