// verify finds a difference and names it. Equal runs and the command: tests/command/export_test.py.
#include "trainer/run/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "memory/base/error.h"
#include "memory/runtime/arena.h"
#include "tests/trainer/temporary_directory.h"

namespace spillway {
namespace {

class VerifyTest : public testing::Test {
 protected:
  VerifyTest() {
    std::string text;
    for (int i = 0; i < 400; ++i) text += static_cast<char>('a' + i * i % 26);
    options_.model.model = SPILLWAY_TEST_DATA "/golden/qwen3";
    options_.data.data = {directory_.file("text.txt", text)};
    options_.data.tokenizer = "bytes";
    options_.batch = {.micro_batch_size = 1, .global_batch_size = 2, .seq_length = 16, .train_iters = 3};
    options_.precision.dtype = DType::float32;
    options_.memory.budget[Tier::device] = 64 * kMiB;
    options_.memory.profile = SPILLWAY_TEST_DATA "/machine.json";
  }

  VerifyResult run(std::int64_t steps, const Disturb& disturb = {}) {
    return verify(options_, steps, [](std::string_view) {}, disturb);
  }

  // Flips the last bit of one element of an array, in the second run.
  static Disturb flip(std::string block_name, StateKind kind, std::int64_t element) {
    return [=](int which, Executor& executor, const UnitGraph& graph) {
      if (which == 0) return;
      for (int b = 0; b < static_cast<int>(graph.blocks.size()); ++b) {
        if (graph.blocks[b].name != block_name) continue;
        const Bytes bytes = 4 * kBlockElements;
        const Arena arena(bytes, "an array's beginning");
        const std::span<std::byte> data(arena.data(), static_cast<std::size_t>(bytes));
        executor.read_state(b, kind, 0, data);
        data[static_cast<std::size_t>(4 * element)] ^= std::byte{1};
        executor.write_state(b, kind, 0, data);
      }
    };
  }

  TemporaryDirectory directory_;
  RunOptions options_;
};

TEST_F(VerifyTest, EqualRunsAreEqual) {
  const VerifyResult result = run(2);
  EXPECT_TRUE(result.equal()) << result.verdict;
  EXPECT_EQ(result.steps.size(), 2u);
  EXPECT_FALSE(result.plans_differ.empty());
  EXPECT_NE(result.verdict.find("equal"), std::string::npos);
}

TEST_F(VerifyTest, ABitOfAWeightShowsInTheLossOrTheNorm) {
  const VerifyResult result = run(2, flip("final norm", StateKind::weight, 3));
  EXPECT_FALSE(result.equal());
  EXPECT_NE(result.verdict.find("first at step"), std::string::npos) << result.verdict;
  ASSERT_TRUE(result.state);
  EXPECT_NE(verify_json(result).find("\"equal\": false"), std::string::npos);
}

TEST_F(VerifyTest, ABitOfAMomentIsNamed) {
  // With a learning rate of zero a moment affects nothing but itself.
  options_.schedule.lr = 0;
  options_.optimizer.adam_beta2 = 0.999;
  const VerifyResult result = run(1, [](int which, Executor& executor, const UnitGraph& graph) {
    if (which == 0) return;
    const Bytes bytes = 4 * kBlockElements;
    const Arena arena(bytes, "an array's beginning");
    std::memset(arena.data(), 0, static_cast<std::size_t>(bytes));
    reinterpret_cast<float*>(arena.data())[70] = 1.0f;
    const auto block =
        static_cast<int>(std::ranges::find(graph.blocks, "layer 0 mlp", &ParameterBlock::name) - graph.blocks.begin());
    executor.write_state(block, StateKind::v, 0, {arena.data(), static_cast<std::size_t>(bytes)});
  });
  EXPECT_FALSE(result.equal());
  EXPECT_TRUE(result.steps[0].equal());
  ASSERT_TRUE(result.state);
  EXPECT_TRUE(result.state->array.starts_with("second moment of model.layers.0.")) << result.state->array;
  EXPECT_NE(result.state->first_bits, result.state->second_bits);
  EXPECT_NE(result.verdict.find("norms are equal; first in the final state"), std::string::npos) << result.verdict;
}

TEST(NameOfElementTest, FollowsThePiecesAndTheirLayout) {
  ParameterBlock block;
  block.elements = 4096;
  block.pieces.push_back({.tensor = "a", .file_shape = {8}, .rows = 8, .columns = 1, .begin = 0});
  block.pieces.push_back(
      {.tensor = "b", .file_shape = {10, 20}, .row_begin = 5, .column_begin = 4, .rows = 5, .columns = 6, .begin = 64});
  block.pieces.push_back(
      {.tensor = "c", .file_shape = {6, 3}, .layout = FileLayout::transposed, .rows = 3, .columns = 6, .begin = 128});
  block.pieces.push_back(
      {.tensor = "d", .file_shape = {12, 3}, .row_begin = 1, .row_step = 2, .rows = 6, .columns = 3, .begin = 192});
  const auto at = [&](std::int64_t element) { return name_of_element(block, element); };
  EXPECT_EQ(at(7).tensor, "a");
  EXPECT_THAT(at(7).at, testing::ElementsAre(7));
  EXPECT_EQ(at(8).tensor, "");
  EXPECT_EQ(at(64 + 7).tensor, "b");
  EXPECT_THAT(at(64 + 7).at, testing::ElementsAre(6, 5));
  EXPECT_THAT(at(128 + 8).at, testing::ElementsAre(2, 1));
  EXPECT_THAT(at(192 + 7).at, testing::ElementsAre(5, 1));
}

TEST_F(VerifyTest, APlanThatStopsIsNotVerified) {
  options_.schedule.lr = 1e30;
  EXPECT_REFUSED(run(3), NotFiniteError, "step 2 under the first plan");
}

}  // namespace
}  // namespace spillway
