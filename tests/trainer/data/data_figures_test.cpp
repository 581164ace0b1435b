// Rows become sequences; and the figures of the data before the first step.
#include "trainer/data/data_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "memory/base/error.h"
#include "tests/trainer/temporary_directory.h"
#include "trainer/data/data.h"

namespace spillway {
namespace {

using testing::ElementsAre;
using Ids = std::vector<std::int32_t>;

DataRequest request_of(std::vector<std::string> paths, std::int64_t seq_length) {
  DataRequest request;
  request.paths = std::move(paths);
  request.tokenizer = "bytes";
  request.order = DataOrder::sequential;
  request.seq_length = seq_length;
  request.vocabulary = 256;
  return request;
}

struct Batch {
  Ids tokens, targets;  // [T]
};
Batch batch_of(BatchSampler& sampler, const DataRequest& request, std::int64_t step) {
  const auto size = static_cast<std::size_t>(request.seq_length);
  Batch batch{Ids(size, 7777), Ids(size, 7777)};
  sampler.fill(step, 0, batch.tokens, batch.targets);
  return batch;
}

TEST(Data, ARowWithoutLossIsNotTrained) {
  const TemporaryDirectory directory;
  for (const std::string row : {"{\"input_ids\": [3, 4], \"labels\": [3, -100]}", "{\"input_ids\": [3]}"}) {
    DataRequest request = request_of({directory.file("r.jsonl", "{\"input_ids\": [1, 2]}\n\n" + row + "\n")}, 4);
    EXPECT_REFUSED(BatchSampler{request}, InputError, "r.jsonl line 3: ");
    request.skip_bad_lines = true;
    EXPECT_EQ(BatchSampler(request).sequences(), 1);
    EXPECT_THAT(BatchSampler(request).summary(), testing::HasSubstr("1 bad line left out, the first: "));
  }
}

TEST(Data, LabelsMayBeOtherTokens) {
  const TemporaryDirectory directory;
  const DataRequest request = request_of(
      {directory.file("r.jsonl", "{\"input_ids\": [1, 2, 3], \"labels\": [-100, 9, 3]}\n{\"input_ids\": [4, 5]}\n")}, 4);
  BatchSampler sampler(request);
  EXPECT_THAT(batch_of(sampler, request, 0).tokens, ElementsAre(1, 2, 0, 0));
  EXPECT_THAT(batch_of(sampler, request, 0).targets, ElementsAre(9, 3, kNoLoss, kNoLoss));
  EXPECT_THAT(batch_of(sampler, request, 1).targets, ElementsAre(5, kNoLoss, kNoLoss, kNoLoss));
}

TEST(Data, FiguresAreToldBeforeTheFirstStep) {
  const TemporaryDirectory directory;
  DataRequest request = request_of(
      {directory.file("r.jsonl",
                      "{\"input_ids\": [1, 2, 3, 4, 5, 6]}\n{\"input_ids\": [1, 2, 3], \"labels\": [-100, -100, 3]}\nno\n")},
      4);
  request.truncate = request.skip_bad_lines = true;
  request.micro_batch_size = 4;
  const BatchSampler sampler(request);
  EXPECT_THAT(sampler.summary(),
              testing::HasSubstr("2 documents, 8 tokens, 5 with loss; longest row 6 tokens; 25.0 % of positions are "
                                 "padding; 1 row cut; 1 bad line left out"));
  EXPECT_EQ(sampler.words_of_epoch(), "0.50 steps an epoch");
  EXPECT_REFUSED(sampler.steps_of(3), InputError, "--epochs: found 2 sequences in --data, less than the 4 of a step");
  request.micro_batch_size = 2;
  EXPECT_EQ(BatchSampler(request).words_of_epoch(), "1 step an epoch");
  EXPECT_EQ(BatchSampler(request).steps_of(3), 3);
  request.micro_batch_size = 1;
  EXPECT_EQ(BatchSampler(request).steps_of(0.1), 1);
  EXPECT_EQ(BatchSampler(request).steps_of(1.25), 3);
  RunOptions options;
  options.batch.epochs = 2.5;
  settle_by_data(options, BatchSampler(request));
  EXPECT_EQ(options.batch.train_iters, 5);
  EXPECT_FALSE(options.batch.epochs);
  options.batch.epochs = 0.5;
  options.schedule.lr_warmup_iters = 2;
  EXPECT_REFUSED(settle_by_data(options, BatchSampler(request)), InputError, "--lr-warmup-iters: found 2, allowed: at most 1");
}

}  // namespace
}  // namespace spillway
