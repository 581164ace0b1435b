// Weights drawn from a seed, and weights that pass whole between blocks and files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "files/safetensors.h"
#include "tests/models/in_core_runner.h"
#include "tests/models/small_families.h"

namespace spillway::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Tensors = std::map<std::string, std::vector<float>>;

TEST(InitialWeights, AreNormalAndTheirOwnSeeds) {
  const ModelConfig config = small_config("gpt2");
  InCoreRunner runner(config, {DType::float32, 1, 8, HeadMode::tiled}, kNoCuts);
  runner.draw(1);
  const Tensors one = runner.parameters();
  for (const auto& [name, values] : one) {
    double sum = 0, squares = 0;
    for (const float v : values) {
      sum += v;
      squares += static_cast<double>(v) * v;
    }
    const double count = static_cast<double>(values.size());
    if (name.ends_with("bias")) {
      EXPECT_EQ(squares, 0) << name;
    } else if (name.find("ln_") != std::string::npos) {
      EXPECT_EQ(sum, count) << name;
    } else {
      // GPT-2's residual projections are divided by sqrt(2 layers).
      const double expected = name.ends_with("c_proj.weight") ? config.initializer_range / 2 : config.initializer_range;
      EXPECT_NEAR(sum / count, 0, 5 * expected / std::sqrt(count)) << name;
      EXPECT_NEAR(std::sqrt(squares / count), expected, 5 * expected / std::sqrt(2 * count)) << name;
    }
  }
  runner.draw(2);
  EXPECT_NE(runner.parameters().at("transformer.wte.weight"), one.at("transformer.wte.weight"));
}

// A seed gives the same weights in every version.
TEST(InitialWeights, AreThoseOfTheirSeedForEver) {
  const std::pair<const char*, std::uint64_t> sums[] = {{"gpt2", 4191440318533311363u},
                                                        {"llama", 8297050206661613370u},
                                                        {"mistral", 10503668141004802752u},
                                                        {"qwen2", 12233651414290215573u},
                                                        {"qwen3", 10816029777126108943u}};
  for (const auto& [which, expected] : sums) {
    InCoreRunner runner(small_config(which), {DType::float32, 1, 8, HeadMode::tiled}, kManyCuts);
    runner.draw(1);
    std::uint64_t sum = 0xcbf29ce484222325;  // FNV-1a over tensors by name
    for (const auto& [name, values] : runner.parameters()) {
      for (const float v : values) sum = (sum ^ std::bit_cast<std::uint32_t>(v)) * 0x100000001b3;
    }
    EXPECT_EQ(sum, expected) << which;
  }
}

TEST(InitialWeights, OfNormsWithAnOffsetAreZero) {
  ModelConfig config = small_config("qwen3");
  FamilyRow family = *config.family;
  family.norm_offset = 1;
  config.family = &family;
  InCoreRunner runner(config, {DType::float32, 1, 8, HeadMode::tiled}, kNoCuts);
  runner.draw(1);
  int norms = 0;
  for (const auto& [name, values] : runner.parameters()) {
    if (name.find("norm") == std::string::npos) continue;
    EXPECT_EQ(values, std::vector<float>(values.size(), 0.0f)) << name;
    ++norms;
  }
  EXPECT_EQ(norms, 2 * 4 + 1);
}

// --- Weights in files -----------------------------------------------------------------------------------------------------

class WeightFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "spillway_weights_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { fs::remove_all(directory_); }

  fs::path file() const { return directory_ / "model.safetensors"; }
  UnitGraph graph_of(const ModelConfig& config, const Cuts& cuts) {
    return build_model_with_cuts(config, {DType::bfloat16, 1, 8, HeadMode::tiled}, cuts).graph;
  }
  void write(const UnitGraph& graph, const std::vector<std::vector<float>>& blocks, ElementType type) {
    SafetensorsWriter writer(file(), tensors_to_write(graph, type));
    export_weights(
        graph, type,
        [&](int block, std::int64_t begin, std::span<float> out) {
          EXPECT_LE(static_cast<std::int64_t>(out.size()), kWeightsRange);
          std::copy_n(blocks[static_cast<std::size_t>(block)].begin() + begin, out.size(), out.begin());
        },
        [&](std::string_view tensor, std::span<const std::byte> data) { writer.append(tensor, data); });
    writer.finish();
  }
  static std::vector<std::vector<float>> drawn(const ModelConfig& config, const UnitGraph& graph) {
    std::vector<std::vector<float>> blocks;
    for (const ParameterBlock& block : graph.blocks) {
      blocks.emplace_back(static_cast<std::size_t>(block.elements));
      initial_block_range(config, block, 5, 0, blocks.back());
    }
    return blocks;
  }
  std::string check_error(const ModelConfig& config, const UnitGraph& graph) {
    try {
      check_weights(SafetensorsReader(file()), config, graph);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }

  fs::path directory_;
};

TEST_F(WeightFiles, PassThroughAFileWhole) {
  for (const std::string which : {"gpt2", "llama", "qwen3", "phi3", "glm4", "ernie4_5", "olmo2"}) {
    const ModelConfig config = small_config(which);
    const UnitGraph cut = graph_of(config, kManyCuts), whole = graph_of(config, kNoCuts);
    write(cut, drawn(config, cut), ElementType::f32);
    const SafetensorsReader reader(file());
    check_weights(reader, config, whole);
    const std::vector<std::vector<float>> expected = drawn(config, whole);
    for (std::size_t b = 0; b < expected.size(); ++b) {
      // Reads ranges that begin and end within rows.
      std::vector<float> values(expected[b].size());
      constexpr std::size_t kRange = 1237;
      for (std::size_t begin = 0; begin < values.size(); begin += kRange) {
        const std::size_t size = std::min(kRange, values.size() - begin);
        read_block_range(reader, whole.blocks[b], static_cast<std::int64_t>(begin), std::span(values).subspan(begin, size));
      }
      EXPECT_EQ(values, expected[b]) << which << ' ' << whole.blocks[b].name;
    }
  }
}

// Strips of three rows, of a tensor whose even rows lie before its odd ones.
TEST_F(WeightFiles, EverySecondRowGoesWhereItBelongs) {
  constexpr std::int64_t kColumns = kWeightsRange / 3, kRows = 7;
  ParameterBlock block;
  for (const std::int64_t first : {0, 1}) {
    TensorPiece piece{.tensor = "t", .file_shape = {kRows, kColumns}};
    piece.row_begin = first, piece.row_step = 2;
    piece.rows = (kRows + 1 - first) / 2, piece.columns = kColumns;
    piece.begin = block.elements;
    block.elements += piece.elements();
    block.pieces.push_back(piece);
  }
  UnitGraph graph;
  graph.tensors = 1;
  graph.blocks = {block};
  std::vector<std::vector<float>> blocks(1);
  for (const TensorPiece& piece : block.pieces) {
    for (std::int64_t row = 0; row < piece.rows; ++row)
      blocks[0].insert(blocks[0].end(), kColumns, static_cast<float>(piece.file_row(row)));
  }
  write(graph, blocks, ElementType::f32);
  const SafetensorsReader reader(file());
  std::vector<float> values(kRows * kColumns);
  reader.read(*reader.find("t"), 0, values);
  std::int64_t place = 0;
  for (const float value : values) ASSERT_EQ(value, static_cast<float>(place++ / kColumns));
}

TEST_F(WeightFiles, AreRoundedToBFloat16) {
  const ModelConfig config = small_config("qwen2");
  const UnitGraph graph = graph_of(config, kManyCuts);
  const std::vector<std::vector<float>> blocks = drawn(config, graph);
  write(graph, blocks, ElementType::bf16);
  const SafetensorsReader reader(file());
  std::vector<float> values(blocks[0].size());
  read_block_range(reader, graph.blocks[0], 0, values);
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], BFloat16::from_float(blocks[0][i]).to_float());
}

// Writes a file of the given tensors, all of zeros.
void write_zeros(const fs::path& file, const std::vector<TensorToWrite>& tensors) {
  SafetensorsWriter writer(file, tensors);
  for (const TensorToWrite& tensor : tensors) {
    const std::int64_t elements = std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::int64_t{1}, std::multiplies<>());
    writer.append(tensor.name, std::vector<std::byte>(static_cast<std::size_t>(elements * size_of(tensor.type))));
  }
  writer.finish();
}

TEST_F(WeightFiles, AreCheckedByName) {
  const ModelConfig config = small_config("gpt2");
  const UnitGraph graph = graph_of(config, kManyCuts);
  const std::vector<TensorToWrite> right = tensors_to_write(graph, ElementType::bf16);

  // Old files have no prefix, the attention mask as a buffer, and a copy of the tied head.
  std::vector<TensorToWrite> old = right;
  for (TensorToWrite& tensor : old) tensor.name = tensor.name.substr(std::string("transformer.").size());
  old.push_back({"h.0.attn.bias", ElementType::f32, {1, 1, 64, 64}});
  old.push_back({"lm_head.weight", ElementType::bf16, {kVocabulary, 64}});
  write_zeros(file(), old);
  EXPECT_EQ(check_error(config, graph), "");

  std::vector<TensorToWrite> missing = right;
  missing.erase(missing.begin() + 3);
  write_zeros(file(), missing);
  EXPECT_THAT(check_error(config, graph), HasSubstr("1 of the model's 28 tensors are missing: " + right[3].name));

  std::vector<TensorToWrite> unexpected = right;
  unexpected.push_back({"transformer.h.2.ln_1.weight", ElementType::bf16, {64}});
  write_zeros(file(), unexpected);
  EXPECT_THAT(check_error(config, graph), HasSubstr("transformer.h.2.ln_1.weight"));

  std::vector<TensorToWrite> misshapen = right;
  misshapen[0].shape[1] += 1;
  write_zeros(file(), misshapen);
  EXPECT_THAT(check_error(config, graph), HasSubstr(right[0].name));
}

}  // namespace
}  // namespace spillway::testing
