// Rows lie together in packs: each once, none beyond a sequence, hardly any room left over.
#include "trainer/data/packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "memory/base/error.h"
#include "tests/trainer/temporary_directory.h"
#include "trainer/data/data.h"

namespace spillway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

// Rows of so many tokens; the tokens of row r are all r.
TokenRows rows_of(const std::vector<std::int64_t>& lengths) {
  TokenRows rows;
  for (std::size_t row = 0; row < lengths.size(); ++row) {
    const Ids tokens(static_cast<std::size_t>(lengths[row]), static_cast<std::int32_t>(row));
    rows.add(tokens, tokens);
  }
  rows.finish();
  return rows;
}

std::vector<std::int64_t> random_lengths(std::size_t count, std::int64_t longest) {
  std::mt19937_64 random(7);
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < count; ++i)
    lengths.push_back(2 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(longest - 1)));
  return lengths;
}

TEST(Packing, EachRowLiesInOnePackAndHardlyAnyRoomIsLeft) {
  constexpr std::int64_t T = 512;
  const std::vector<std::int64_t> lengths = random_lengths(20'000, 300);
  TokenRows rows = rows_of(lengths);
  for (const DataOrder order : {DataOrder::shuffled, DataOrder::sequential}) {
    for (const std::int64_t window : {100, 1 << 16}) {
      const Packs packs(rows, {.seq_length = T, .order = order, .seed = 3, .window = window});
      std::set<std::int64_t> seen;
      std::int64_t used = 0;
      double squares = 0;
      for (std::int64_t pack = 0; pack < packs.packs(); ++pack) {
        std::int64_t positions = 0;
        for (const RowPiece& piece : packs.pieces(pack)) {
          EXPECT_TRUE(seen.insert(piece.row).second) << "row " << piece.row << " twice";
          EXPECT_EQ(piece.begin, 0);
          EXPECT_EQ(piece.positions, lengths[static_cast<std::size_t>(piece.row)] - 1);
          positions += piece.positions, squares += static_cast<double>(piece.positions) * piece.positions;
        }
        EXPECT_LE(positions, T);
        EXPECT_EQ(positions, packs.positions(pack));
        EXPECT_EQ(positions, packs.with_loss(pack));
        used += positions;
      }
      EXPECT_EQ(std::ssize(seen), std::ssize(lengths));
      const double full = static_cast<double>(used) / static_cast<double>(packs.packs() * T);
      EXPECT_GT(full, window == 100 ? 0.9 : 0.999);
      const double padding = static_cast<double>(packs.packs() * T - used);
      EXPECT_NEAR(packs.mean_document(), (squares + padding) / static_cast<double>(packs.packs() * T), 1e-9);
    }
  }
}

TEST(Packing, PacksFollowFromRowsAndSeedAlone) {
  TokenRows rows = rows_of(random_lengths(3000, 40));
  const auto all_pieces = [&](std::uint64_t seed) {
    const Packs packs(rows, {.seq_length = 64, .seed = seed, .window = 500});
    std::vector<std::int64_t> all;
    for (std::int64_t pack = 0; pack < packs.packs(); ++pack) {
      for (const RowPiece& piece : packs.pieces(pack)) all.push_back(piece.row);
    }
    return all;
  };
  EXPECT_EQ(all_pieces(1), all_pieces(1));
  EXPECT_NE(all_pieces(1), all_pieces(2));
}

// A row that leaves no room takes a pack alone; the best fit is the fullest pack, not the first.
TEST(Packing, BestFit) {
  TokenRows rows = rows_of({7 + 1, 6 + 1, 3 + 1, 10 + 1, 4 + 1});
  const Packs packs(rows, {.seq_length = 10, .order = DataOrder::sequential});
  ASSERT_EQ(packs.packs(), 3);
  const auto rows_in = [&](std::int64_t pack) {
    std::vector<std::int64_t> in;
    for (const RowPiece& piece : packs.pieces(pack)) in.push_back(piece.row);
    return in;
  };
  EXPECT_THAT(rows_in(0), ElementsAre(3));
  EXPECT_THAT(rows_in(1), ElementsAre(0, 2));
  EXPECT_THAT(rows_in(2), ElementsAre(1, 4));
}

TEST(Packing, LongRowsGoOnInOtherPacks) {
  TokenRows rows;
  Ids tokens, targets;
  for (std::int32_t t = 0; t < 23; ++t) tokens.push_back(t), targets.push_back(t >= 10 && t < 21 ? kNoLoss : t);
  rows.add(tokens, targets);
  rows.finish();
  const Packs packs(rows, {.seq_length = 5, .order = DataOrder::sequential});
  EXPECT_EQ(packs.split_rows(), 1);
  // 22 positions: targets 1–5, 6–10, 11–15, 16–20, 21–22; the third and the fourth have no loss.
  EXPECT_EQ(packs.pieces_left_out(), 2);
  EXPECT_EQ(packs.positions_left_out(), 10);
  ASSERT_EQ(packs.packs(), 3);
  EXPECT_EQ(packs.pieces(0)[0].begin, 0);
  EXPECT_EQ(packs.pieces(1)[0].begin, 5);
  EXPECT_EQ(packs.pieces(2)[0].begin, 20);
  EXPECT_EQ(packs.pieces(2)[0].positions, 2);
  EXPECT_EQ(packs.with_loss(0), 5);
  EXPECT_EQ(packs.with_loss(1), 4);
  EXPECT_EQ(packs.with_loss(2), 2);
}

DataRequest packed(std::string path, std::int64_t seq_length) {
  DataRequest request;
  request.paths = {std::move(path)};
  request.tokenizer = "bytes";
  request.order = DataOrder::sequential;
  request.packing = true;
  request.seq_length = seq_length;
  request.vocabulary = 256;
  return request;
}

TEST(Packing, TheSamplerReadsPacks) {
  const TemporaryDirectory directory;
  const DataRequest request =
      packed(directory.file("r.jsonl",
                            "{\"input_ids\": [1, 2, 3], \"labels\": [1, -100, 9]}\n{\"input_ids\": [4, 5, 6, 7]}\n"
                            "{\"input_ids\": [8, 9, 10, 11, 12]}\n"),
             6);
  BatchSampler sampler(request);
  EXPECT_EQ(sampler.sequences(), 2);
  EXPECT_THAT(sampler.summary(), HasSubstr("12 tokens, 8 with loss; longest row 5 tokens; 25.0 % of positions are padding; rows "
                                           "lie in 2 packs"));
  Ids tokens(6, 77), targets(6, 77), documents(6, 77);
  sampler.fill(0, 0, tokens, targets, documents);
  EXPECT_THAT(tokens, ElementsAre(8, 9, 10, 11, 1, 2));
  EXPECT_THAT(targets, ElementsAre(9, 10, 11, 12, kNoLoss, 9));
  EXPECT_THAT(documents, ElementsAre(0, 0, 0, 0, 4, 4));
  EXPECT_EQ(sampler.counted_tokens(0), 5);
  EXPECT_EQ(sampler.positions(0), 6);
  sampler.fill(1, 0, tokens, targets, documents);
  EXPECT_THAT(tokens, ElementsAre(4, 5, 6, 0, 0, 0));
  EXPECT_THAT(targets, ElementsAre(5, 6, 7, kNoLoss, kNoLoss, kNoLoss));
  EXPECT_THAT(documents, ElementsAre(0, 0, 0, 3, 4, 5));
  EXPECT_EQ(sampler.positions(1), 3);
}

TEST(Packing, RowsOfAllFilesLieTogetherBesideWindowsOfText) {
  const TemporaryDirectory directory;
  DataRequest request = packed(directory.file("a.jsonl", "{\"input_ids\": [1, 2, 3]}\n"), 4);
  request.paths.push_back(directory.file("b.txt", "abcdefghi"));
  request.paths.push_back(directory.file("c.jsonl", "{\"input_ids\": [4, 5, 6]}\n"));
  BatchSampler sampler(request);
  EXPECT_EQ(sampler.sequences(), 3);
  Ids tokens(4), targets(4), documents(4, 7);
  sampler.fill(0, 0, tokens, targets, documents);
  EXPECT_THAT(tokens, ElementsAre('a', 'b', 'c', 'd'));
  EXPECT_THAT(documents, ElementsAre(0, 0, 0, 0));
  sampler.fill(2, 0, tokens, targets, documents);
  EXPECT_THAT(tokens, ElementsAre(1, 2, 4, 5));
  EXPECT_THAT(documents, ElementsAre(0, 0, 2, 2));
}

TEST(Packing, Refused) {
  const TemporaryDirectory directory;
  EXPECT_REFUSED(BatchSampler{packed(directory.file("b.txt", "abcdefghi"), 4)}, InputError,
                 "--packing: found no file of rows in --data");
  DataRequest request = packed(directory.file("r.jsonl", "{\"input_ids\": [1, 2, 3, 4, 5, 6]}\n"), 4);
  EXPECT_REFUSED(BatchSampler{request}, InputError, "found 6 tokens, allowed: at most 5");
  request.split_rows = true;
  EXPECT_EQ(BatchSampler(request).sequences(), 2);
  EXPECT_THAT(BatchSampler(request).summary(), HasSubstr("; 1 row split"));
}

}  // namespace
}  // namespace spillway
