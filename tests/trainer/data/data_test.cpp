// B: sequences in a micro-batch. M: micro-batches in a step. T: positions. V: vocabulary.
#include "trainer/data/data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>
#include <numeric>
#include <set>

#include "memory/base/error.h"
#include "tests/trainer/damaged_text.h"
#include "tests/trainer/temporary_directory.h"
#include "trainer/data/data_order.h"

namespace spillway {
namespace {

using testing::Each;
using testing::ElementsAre;
using Ids = std::vector<std::int32_t>;

DataRequest request_of(std::vector<std::string> paths, std::int64_t seq_length, std::int64_t vocabulary = 256) {
  DataRequest request;
  request.paths = std::move(paths);
  request.tokenizer = "bytes";
  request.order = DataOrder::sequential;
  request.seq_length = seq_length;
  request.vocabulary = vocabulary;
  return request;
}

struct Batch {
  Ids tokens;   // [B, T]
  Ids targets;  // [B, T]
};

Batch batch_of(BatchSampler& sampler, const DataRequest& request, std::int64_t step, std::int64_t micro_batch = 0) {
  const auto size = static_cast<std::size_t>(request.micro_batch_size * request.seq_length);
  Batch batch{Ids(size, 7777), Ids(size, 7777)};
  sampler.fill(step, micro_batch, batch.tokens, batch.targets);
  return batch;
}

template <typename Token>
std::string raw(const std::vector<Token>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(Token)};
}

std::string header(std::int32_t magic, std::int32_t version, std::int32_t tokens) {
  std::vector<std::int32_t> words(256);
  words[0] = magic;
  words[1] = version;
  words[2] = tokens;
  return raw(words);
}

TEST(Data, TextIsCutIntoOverlappingWindows) {
  const TemporaryDirectory directory;
  const DataRequest request = request_of({directory.file("a.txt", "abcdefghij")}, 4);  // windows abcde, efghi; j is left over
  BatchSampler sampler(request);
  EXPECT_EQ(sampler.sequences(), 2);
  EXPECT_EQ(sampler.counted_tokens(0), 4);
  Batch batch = batch_of(sampler, request, 0);
  EXPECT_THAT(batch.tokens, ElementsAre('a', 'b', 'c', 'd'));
  EXPECT_THAT(batch.targets, ElementsAre('b', 'c', 'd', 'e'));
  batch = batch_of(sampler, request, 1);
  EXPECT_THAT(batch.tokens, ElementsAre('e', 'f', 'g', 'h'));
  EXPECT_THAT(batch.targets, ElementsAre('f', 'g', 'h', 'i'));
  EXPECT_EQ(batch_of(sampler, request, 2).tokens[0], 'a');  // starts over
}

TEST(Data, EveryByteIsAToken) {
  const TemporaryDirectory directory;
  std::string text(257, '\0');
  std::iota(text.begin(), text.end(), '\0');
  const DataRequest request = request_of({directory.file("a.txt", text)}, 256);
  BatchSampler sampler(request);
  const Batch batch = batch_of(sampler, request, 0);
  for (std::int32_t i = 0; i < 256; ++i) EXPECT_EQ(batch.tokens[static_cast<std::size_t>(i)], i);
}

TEST(Data, MicroBatchesTakeSequencesInOrder) {
  const TemporaryDirectory directory;
  DataRequest request =
      request_of({directory.file("a.txt", "abcdefghijklm"), directory.file("b.txt", "ABC")}, 2);  // 6 + 1 windows
  request.micro_batch_size = 2;
  request.micro_batches = 2;
  BatchSampler sampler(request);
  EXPECT_EQ(sampler.sequences(), 7);
  EXPECT_THAT(batch_of(sampler, request, 0, 0).tokens, ElementsAre('a', 'b', 'c', 'd'));
  EXPECT_THAT(batch_of(sampler, request, 0, 1).tokens, ElementsAre('e', 'f', 'g', 'h'));
  EXPECT_THAT(batch_of(sampler, request, 1, 0).tokens, ElementsAre('i', 'j', 'k', 'l'));
  EXPECT_THAT(batch_of(sampler, request, 1, 1).tokens, ElementsAre('A', 'B', 'a', 'b'));
}

TEST(Data, ShufflingTakesEachSequenceOnceAnEpoch) {
  const TemporaryDirectory directory;
  std::string text;
  for (int i = 0; i < 101; ++i) text += static_cast<char>(i);
  DataRequest request = request_of({directory.file("a.txt", text)}, 1);
  request.order = DataOrder::shuffled;
  request.seed = 5;
  request.micro_batch_size = 10;
  BatchSampler sampler(request);
  std::vector<Ids> epochs;
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    Ids order;
    for (std::int64_t step = 0; step < 10; ++step) {
      const Batch batch = batch_of(sampler, request, epoch * 10 + step);
      order.insert(order.end(), batch.tokens.begin(), batch.tokens.end());
    }
    EXPECT_EQ(std::set<std::int32_t>(order.begin(), order.end()).size(), 100U);
    epochs.push_back(order);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  BatchSampler again(request);
  EXPECT_EQ(batch_of(again, request, 13).tokens, batch_of(sampler, request, 13).tokens) << "a batch follows from the step alone";
  request.seed = 6;
  BatchSampler other(request);
  EXPECT_NE(batch_of(other, request, 0).tokens, Ids(epochs[0].begin(), epochs[0].begin() + 10));
}

TEST(Data, TheLastSequencesOfAnEpochMayBeDropped) {
  const TemporaryDirectory directory;
  DataRequest request = request_of({directory.file("a.txt", "abcdefg")}, 1);  // 6 sequences
  request.micro_batch_size = 2;
  request.micro_batches = 2;
  request.drop_last = true;
  BatchSampler sampler(request);
  EXPECT_THAT(batch_of(sampler, request, 0, 1).tokens, ElementsAre('c', 'd'));
  EXPECT_THAT(batch_of(sampler, request, 1, 0).tokens, ElementsAre('a', 'b'));
  EXPECT_THAT(sampler.summary(), testing::HasSubstr("6 sequences of 1 position; 2 of each epoch dropped"));
  // Shuffled, each epoch drops other sequences, and the remaining ones are those of a run that drops none.
  request.order = DataOrder::shuffled;
  BatchSampler shuffled(request);
  request.drop_last = false;
  BatchSampler filled(request);
  EXPECT_EQ(batch_of(shuffled, request, 0, 1).tokens, batch_of(filled, request, 0, 1).tokens);
  EXPECT_EQ(batch_of(shuffled, request, 1, 0).tokens, batch_of(filled, request, 1, 1).tokens) << "the second epoch's first two";
  request.drop_last = true;
  request.micro_batches = 4;
  EXPECT_REFUSED(BatchSampler{request}, InputError, "--drop-last: found 6 sequences in --data, less than the 8 of a step");
  request.micro_batches = 3;
  EXPECT_THAT(BatchSampler(request).summary(), Not(testing::HasSubstr("dropped")));
}

TEST(Data, TokenFiles) {
  const TemporaryDirectory directory;
  const std::vector<std::uint16_t> short_tokens = {1, 2, 50256, 4, 5};
  const std::vector<std::uint32_t> long_tokens = {1, 2, 128000, 4, 5};
  const std::string gpt2 = directory.file("gpt2.bin", header(20240520, 1, 5) + raw(short_tokens));
  const std::string llama = directory.file("llama.bin", header(20240801, 7, 5) + raw(long_tokens));
  DataRequest request = request_of({gpt2}, 4, 50257);
  BatchSampler first(request);
  EXPECT_THAT(batch_of(first, request, 0).tokens, ElementsAre(1, 2, 50256, 4));
  EXPECT_THAT(batch_of(first, request, 0).targets, ElementsAre(2, 50256, 4, 5));
  request = request_of({llama}, 4, 128001);
  BatchSampler second(request);
  EXPECT_THAT(batch_of(second, request, 0).tokens, ElementsAre(1, 2, 128000, 4));
  request = request_of({directory.file("raw.dat", raw(short_tokens))}, 2, 50257);
  request.format = DataFormat::u16;
  BatchSampler third(request);
  EXPECT_EQ(third.sequences(), 2);
  EXPECT_THAT(batch_of(third, request, 1).tokens, ElementsAre(50256, 4));
}

TEST(Data, DamagedTokenFiles) {
  const TemporaryDirectory directory;
  const std::string tokens = raw(std::vector<std::uint16_t>{1, 2, 3, 4, 5});
  const auto refused = [&](const std::string& content, const std::string& part, DataFormat format = DataFormat::automatic) {
    DataRequest request = request_of({directory.file("x.bin", content)}, 2, 50257);
    request.format = format;
    EXPECT_REFUSED(BatchSampler{request}, InputError, part);
    EXPECT_REFUSED(BatchSampler{request}, InputError, "x.bin");
  };
  refused(tokens, "found 10 bytes, allowed: a header of 1024");
  refused("", "found 0 bytes");
  refused(header(20240520, 7, 5) + tokens, "magic 20240520 and version 7");
  refused(header(20240801, 1, 5) + tokens, "magic 20240801 and version 1");
  refused(header(0, 0, 0), "magic 0");
  refused(header(20240520, 1, 6) + tokens, "6 tokens of 2 bytes, so 1036 bytes in all, found 1034");
  refused(header(20240520, 1, -1) + tokens, "-1 tokens");
  refused(header(20240520, 1, 2147483647) + tokens, "found 1034");
  refused(header(20240801, 7, 5) + tokens, "found 1034");
  refused(header(20240520, 1, 5) + tokens + "x", "found 1035");
  refused(header(20240520, 1, 0), "too few tokens");
  refused(tokens + "x", "an even number", DataFormat::u16);
  refused("", "nothing", DataFormat::u16);
}

TEST(Data, ATokenOutsideOfTheVocabularyIsFoundBeforeTraining) {
  const TemporaryDirectory directory;
  // Far beyond the first block that is read.
  std::vector<std::uint16_t> tokens(1'500'000, 3);
  tokens[1'400'001] = 1000;
  const std::string path = directory.file("x.bin", header(20240520, 1, 1'500'000) + raw(tokens));
  EXPECT_REFUSED(BatchSampler{request_of({path}, 8, 1000)}, InputError,
                 "found token 1000 at position 1400001 (byte 2801026), allowed: below 1000");
  EXPECT_NO_THROW(BatchSampler{request_of({path}, 8, 1001)});
  EXPECT_REFUSED(BatchSampler{request_of({directory.file("a.txt", "abc\xc3\xa9")}, 2, 128)}, InputError,
                 "found token 195 at position 3");
}

TEST(Data, AFileThatChangesUnderTheRunIsNoticed) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("x.txt", std::string(100, 'a'));
  const DataRequest request = request_of({path}, 9, 128);
  BatchSampler sampler(request);
  {
    std::ofstream(path, std::ios::in | std::ios::out) << "\xff";
  }
  EXPECT_REFUSED(batch_of(sampler, request, 0), InputError, "found token 255");
  std::filesystem::resize_file(path, 50);
  EXPECT_REFUSED(batch_of(sampler, request, 9), IoError, "x.txt");
}

TEST(Data, Rows) {
  const TemporaryDirectory directory;
  const std::string path =
      directory.file("r.jsonl",
                     "{\"input_ids\": [1, 2, 3, 4, 5]}\n"
                     "\n"
                     "{\"labels\": [-100, -100, 8, 9], \"other\": {\"input_ids\": [99999]}, \"input_ids\": [6, 7, 8, 9]}\r\n"
                     "  \n"
                     "{\"text\": \"h\\u00e9\", \"id\": 1.5e300}\n"
                     "{\"texts\": \"ignored\", \"input_ids\": [42, 43]}");
  DataRequest request = request_of({path}, 4);
  BatchSampler sampler(request);
  EXPECT_EQ(sampler.sequences(), 4);
  Batch batch = batch_of(sampler, request, 0);
  EXPECT_THAT(batch.tokens, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(batch.targets, ElementsAre(2, 3, 4, 5));
  batch = batch_of(sampler, request, 1);
  EXPECT_THAT(batch.tokens, ElementsAre(6, 7, 8, 0));
  EXPECT_THAT(batch.targets, ElementsAre(-100, 8, 9, -100)) << "labels[t] is the target of position t-1";
  batch = batch_of(sampler, request, 2);
  EXPECT_THAT(batch.tokens, ElementsAre('h', 0xc3, 0, 0));
  EXPECT_THAT(batch.targets, ElementsAre(0xc3, 0xa9, -100, -100));
  EXPECT_EQ(sampler.counted_tokens(0), 4);
  EXPECT_EQ(sampler.counted_tokens(1), 2);
  EXPECT_EQ(sampler.counted_tokens(2), 2);
  EXPECT_THAT(batch_of(sampler, request, 3).tokens, ElementsAre(42, 0, 0, 0));
}

TEST(Data, CountsAreOfTheGlobalBatch) {
  const TemporaryDirectory directory;
  DataRequest request = request_of(
      {directory.file(
          "r.jsonl", "{\"input_ids\": [1, 2, 3]}\n{\"input_ids\": [1, 2], \"labels\": [9, 9]}\n{\"input_ids\": [1, 2, 3, 4]}\n")},
      4);
  request.micro_batches = 2;
  BatchSampler sampler(request);
  EXPECT_EQ(sampler.counted_tokens(0), 2 + 1);
  EXPECT_EQ(sampler.counted_tokens(1), 3 + 2);
  for (std::int64_t step = 0; step < 6; ++step) {
    std::int64_t counted = 0;
    for (std::int64_t micro_batch = 0; micro_batch < 2; ++micro_batch) {
      for (const std::int32_t target : batch_of(sampler, request, step, micro_batch).targets)
        counted += target != kNoLoss ? 1 : 0;
    }
    EXPECT_EQ(sampler.counted_tokens(step), counted);
  }
}

TEST(Data, LongRowsAreRefusedOrCut) {
  const TemporaryDirectory directory;
  const std::string path = directory.file(
      "r.jsonl",
      "{\"input_ids\": [1, 2, 3]}\n{\"input_ids\": [1, 2, 3, 4], \"labels\": [-100, 2, 3, 4]}\n{\"text\": \"abcdef\"}");
  DataRequest request = request_of({path}, 2);
  EXPECT_REFUSED(BatchSampler{request}, InputError, "r.jsonl line 2: found 4 tokens, allowed: at most 3 (--seq-length + 1)");
  request.truncate = true;
  BatchSampler sampler(request);
  EXPECT_THAT(batch_of(sampler, request, 1).tokens, ElementsAre(1, 2));
  EXPECT_THAT(batch_of(sampler, request, 1).targets, ElementsAre(2, 3));
  EXPECT_THAT(batch_of(sampler, request, 2).targets, ElementsAre('b', 'c'));
  EXPECT_EQ(sampler.counted_tokens(1), 2);
}

TEST(Data, HostileRows) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"{\"input_ids\": [1, 2", "not valid JSON at byte"},
      {"{\"input_ids\": [1, 2]} x", "not valid JSON"},
      {"nonsense", "not valid JSON"},
      {"[1, 2]", "found an array, allowed: an object a line"},
      {"7", "found 7, allowed: an object"},
      {"\"x\"", "found a string, allowed: an object"},
      {"null", "found null"},
      {"{}", "neither \"input_ids\" nor \"text\" nor \"messages\""},
      {"{\"input_ids\": [1, 2], \"text\": \"a\"}", "both \"input_ids\" and \"text\""},
      {"{\"input_ids\": []}", "no input_ids"},
      {"{\"input_ids\": null}", "\"input_ids\" is null"},
      {"{\"input_ids\": 5}", "\"input_ids\" is 5"},
      {"{\"input_ids\": \"1 2\"}", "\"input_ids\" is a string"},
      {"{\"input_ids\": {\"a\": 1}}", "an object in \"input_ids\""},
      {"{\"input_ids\": [[1, 2]]}", "an array in \"input_ids\""},
      {"{\"input_ids\": [1, 2.0]}", "found 2.0 in \"input_ids\""},
      {"{\"input_ids\": [1, null]}", "null in \"input_ids\""},
      {"{\"input_ids\": [1, true]}", "a boolean in \"input_ids\""},
      {"{\"input_ids\": [1, \"2\"]}", "a string in \"input_ids\""},
      {"{\"input_ids\": [1, -1]}", "token -1 at position 1, allowed: 0 to 255"},
      {"{\"input_ids\": [1, -100]}", "token -100"},
      {"{\"input_ids\": [256]}", "token 256 at position 0"},
      {"{\"input_ids\": [4294967297]}", "token a number above 2^31"},
      {"{\"input_ids\": [18446744073709551615]}", "token a number above 2^31"},
      {"{\"input_ids\": [99999999999999999999999]}", "in \"input_ids\""},
      {"{\"input_ids\": [1, 2], \"labels\": [1]}", "1 labels for 2 input_ids"},
      {"{\"input_ids\": [1, 2], \"labels\": [1, -99]}", "label -99 at position 1"},
      {"{\"input_ids\": [1, 2], \"labels\": [1, 256]}", "or -100 for no loss"},
      {"{\"input_ids\": [1, 2], \"labels\": null}", "\"labels\" is null"},
      {"{\"labels\": [1, 2]}", "\"labels\" without \"input_ids\""},
      {"{\"input_ids\": [1, 2], \"input_ids\": [3]}", "\"input_ids\" twice"},
      {"{\"text\": 5}", "\"text\" is a number"},
      {"{\"text\": [\"a\"]}", "\"text\" is an array"},
      {"{\"text\": {\"a\": 1}}", "\"text\" is an object"},
      {"{\"text\": \"\"}", "an empty \"text\""},
      {"{\"messages\": []}", "\"messages\" without a tokenizer.json"},
      {"{\"input_ids\": [1, 2], \"x\": \"\xff\"}", "not valid JSON"},
      {std::string("{\"input_ids\": [1, 2]}\0", 22), "not valid JSON"},
      {std::string(5000, '['), "an array"},
      {"{\"x\": " + std::string(100'000, '['), "not valid JSON"},
  };
  const TemporaryDirectory directory;
  for (const auto& [row, part] : bad) {
    const std::string path = directory.file("r.jsonl", "{\"input_ids\": [1, 2]}\n\n" + row + "\n{\"input_ids\": [1, 2]}\n");
    EXPECT_REFUSED(BatchSampler{request_of({path}, 4)}, InputError, part);
    EXPECT_REFUSED(BatchSampler{request_of({path}, 4)}, InputError, "r.jsonl line 3: ");
  }
  DataRequest request = request_of({directory.file("t.jsonl", "{\"text\": \"abc\"}")}, 4, 98);
  EXPECT_REFUSED(BatchSampler{request}, InputError, "found byte 98 in \"text\", allowed: below 98");
  request = request_of({directory.file("t.jsonl", "{\"text\": \"abc\"}")}, 4);
  request.tokenizer.clear();
  EXPECT_REFUSED(BatchSampler{request}, InputError, "\"text\" without --tokenizer bytes");
}

TEST(Data, RowsThatSpanTheBlocksOfAReading) {
  const TemporaryDirectory directory;
  std::string text;
  std::vector<std::int32_t> firsts;
  std::uint32_t random = 3;
  while (text.size() < 3'500'000) {
    random = random * 1664525U + 1013904223U;
    firsts.push_back(static_cast<std::int32_t>(random >> 24));
    text += "{\"pad\": \"" + std::string((random >> 8) % 200'000, 'p') + "\", \"input_ids\": [" + std::to_string(firsts.back()) +
            ", 1]}\n";
  }
  text += "{\"pad\": \"" + std::string(2'500'000, 'p') +
          "\", \"input_ids\": [77, 1]}";  // longer than two blocks, without a newline at its end
  firsts.push_back(77);
  const DataRequest request = request_of({directory.file("r.jsonl", text)}, 1);
  BatchSampler sampler(request);
  ASSERT_EQ(sampler.sequences(), static_cast<std::int64_t>(firsts.size()));
  for (std::size_t i = 0; i < firsts.size(); ++i)
    EXPECT_EQ(batch_of(sampler, request, static_cast<std::int64_t>(i)).tokens[0], firsts[i]);
}

TEST(Data, BadLinesMayBeLeftOut) {
  const TemporaryDirectory directory;
  const std::string path =
      directory.file("r.jsonl", "no\n{\"input_ids\": [1, 2]}\n{\"input_ids\": [1, 256]}\n" + std::string(65 << 20, ' ') +
                                    "x\n\n{\"input_ids\": [3, 4]}\n{\"input_ids\": [1, 2, 3, 4, 5, 6]}");
  DataRequest request = request_of({path}, 4);
  EXPECT_REFUSED(BatchSampler{request}, InputError, "r.jsonl line 1: not valid JSON");
  request.skip_bad_lines = true;
  BatchSampler sampler(request);
  EXPECT_EQ(sampler.sequences(), 2);
  EXPECT_THAT(sampler.summary(), testing::HasSubstr("4 bad lines left out, the first: " + path + " line 1: not valid JSON"));
  std::vector<std::int32_t> tokens(4), targets(4);
  sampler.fill(1, 0, tokens, targets);
  EXPECT_EQ(tokens, (std::vector<std::int32_t>{3, 0, 0, 0}));
  EXPECT_EQ(targets, (std::vector<std::int32_t>{4, kNoLoss, kNoLoss, kNoLoss}));
  request.paths = {directory.file("n.jsonl", "no\n")};
  try {
    BatchSampler{request};
    ADD_FAILURE() << "no sequence is not refused";
  } catch (const InputError& error) {
    EXPECT_THAT(error.help(), testing::HasSubstr("1 bad line left out, the first: "));
  }
}

TEST(Data, ADirectoryMeansItsFilesByName) {
  const TemporaryDirectory directory;
  directory.file("b.txt", "BBBBB");
  directory.file("a.txt", "AAAAA");
  directory.file("c.jsonl", "{\"input_ids\": [67, 67]}");
  directory.file("README.md", "not data");
  directory.file(".hidden.txt", "HHHHH");
  std::filesystem::create_directory(directory.path() + "/d.txt");
  DataRequest request = request_of({directory.path()}, 4);
  BatchSampler sampler(request);
  EXPECT_EQ(sampler.sequences(), 3);
  EXPECT_THAT(sampler.summary(), testing::HasSubstr("3 files, 3 sequences of 4 positions"));
  for (std::int64_t step = 0; step < 3; ++step) EXPECT_EQ(batch_of(sampler, request, step).tokens[0], 'A' + step);
}

TEST(Data, WhatIsNotData) {
  const TemporaryDirectory directory;
  const auto refused = [](DataRequest request, const std::string& part) {
    EXPECT_REFUSED(BatchSampler{request}, InputError, part);
  };
  refused(request_of({}, 4), "--data: not given");
  refused(request_of({directory.path() + "/none.txt"}, 4), "--data: found no file or directory");
  refused(request_of({directory.path()}, 4), "without data");
  refused(request_of({directory.file("a.parquet", "x")}, 4), "a table, allowed: .txt, .jsonl, .ndjson, .json and .bin files");
  refused(request_of({directory.file("empty.txt", "")}, 4), "found nothing in");
  refused(request_of({directory.file("empty.jsonl", "\n\n")}, 4), "found too few tokens in");
  refused(request_of({directory.file("short.txt", "abcd")}, 4), "at least one sequence of 5 tokens");
  const std::string pipe = directory.path() + "/pipe.txt";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  refused(request_of({pipe}, 4), "not a regular file");
  DataRequest request = request_of({directory.file("a.txt", "abcdef")}, 4);
  request.tokenizer.clear();
  refused(request, "--tokenizer: found none for");
  request.tokenizer = "tokenizer.json";
  refused(request, "--tokenizer: found tokenizer.json for");
  request = request_of({directory.path() + "/none"}, 4);
  request.flag = "--eval-data";
  refused(request, "--eval-data: found no file");
}

TEST(Data, RequestsFollowTheOptions) {
  RunOptions options;
  options.data.data = {"a.txt"};
  options.data.eval_data = {"b.txt"};
  options.batch.micro_batch_size = 2;
  options.batch.global_batch_size = 6;
  const DataRequest training = training_data(options, 64, 300);
  EXPECT_EQ(training.micro_batches, 3);
  EXPECT_EQ(training.order, DataOrder::shuffled);
  const DataRequest evaluation = evaluation_data(options, 64, 300);
  EXPECT_THAT(evaluation.paths, ElementsAre("b.txt"));
  EXPECT_EQ(evaluation.flag, "--eval-data");
  EXPECT_EQ(evaluation.order, DataOrder::sequential);
}

TEST(Data, DamagedRowsNeverEscape) {
  const TemporaryDirectory directory;
  const std::string text =
      "{\"input_ids\": [1, 2, 3], \"labels\": [-100, 2, 3]}\n{\"text\": \"h\\u00e9\", \"x\": [1, {\"y\": null}]}\n";
  std::uint32_t random = 9;
  for (int round = 0; round < 400; ++round) {
    const std::string damaged = damaged_text(text, 1 + round % 3, random);
    const DataRequest request = request_of({directory.file("r.jsonl", damaged)}, 4);
    try {
      BatchSampler sampler(request);
      for (std::int64_t step = 0; step < 2; ++step) {
        const Batch batch = batch_of(sampler, request, step);
        EXPECT_THAT(batch.tokens, Each(testing::AllOf(testing::Ge(0), testing::Lt(256))));
      }
    } catch (const InputError&) {
    }
  }
}

}  // namespace
}  // namespace spillway
