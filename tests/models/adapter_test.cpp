// Adapters in a model's graph: against PEFT's curves (tests/data/golden/README.md), against plain loops, and cut in tiles.
#include "models/adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/cpu/cpu_backend.h"
#include "tests/models/comparing_backend.h"
#include "tests/models/golden_case.h"
#include "tests/models/small_families.h"

namespace spillway::testing {
namespace {

struct PeftCase {
  explicit PeftCase(const std::string& name)
      : directory(std::filesystem::path(SPILLWAY_TEST_DATA) / "lora" / name),
        numbers(nlohmann::json::parse(std::ifstream(directory / "golden.json"))),
        base(numbers.at("base").get<std::string>()) {
    const auto config = nlohmann::json::parse(std::ifstream(directory / "adapter" / "adapter_config.json"));
    spec.rank = config.at("r");
    spec.scale = config.at("lora_alpha").get<float>() / config.at("r").get<float>();
    spec.targets = config.at("target_modules");
  }
  SafetensorsReader adapter(const std::string& which) const {
    return SafetensorsReader(directory / which / "adapter_model.safetensors");
  }
  AdamSettings adam() const {
    return {.lr = numbers.at("lr"),
            .beta1 = numbers.at("betas")[0],
            .beta2 = numbers.at("betas")[1],
            .epsilon = numbers.at("eps"),
            .decay = numbers.at("weight_decay"),
            .clip = numbers.at("clip_norm")};
  }

  std::filesystem::path directory;
  nlohmann::json numbers;
  GoldenCase base;
  AdapterSpec spec;
};

double relative_difference(double ours, double theirs) { return std::abs(ours - theirs) / std::abs(theirs); }

class Peft : public ::testing::TestWithParam<std::string> {
 protected:
  void check_curve(std::int64_t micro_batch, HeadMode head, const Cuts& cuts, Backend* backend, SavedValues saved) {
    const PeftCase peft(GetParam());
    const GoldenCase& base = peft.base;
    BuildOptions options{DType::float32, micro_batch, base.sequence, head};
    options.adapter = peft.spec;
    InCoreRunner runner(base.config, options, cuts, 2, backend);
    const SafetensorsReader adapter = peft.adapter("adapter"), last = peft.adapter("final");
    runner.load(SafetensorsReader(base.directory), &adapter);
    EXPECT_EQ(runner.graph().trained_parameters, peft.numbers.at("trainable"));
    for (std::int64_t step = 0; step < base.steps; ++step) {
      const auto at = static_cast<std::size_t>(step);
      const double loss = runner.backward(base.of_step(base.tokens, step), base.of_step(base.targets, step), saved);
      EXPECT_LT(relative_difference(loss, peft.numbers.at("losses")[at]), step == 0 ? 1e-5 : 2e-4) << "step " << step;
      EXPECT_LT(relative_difference(runner.gradient_norm(), peft.numbers.at("grad_norms")[at]), step == 0 ? 1e-4 : 1e-3);
      runner.update(peft.adam());
    }
    for (const auto& [name, values] : runner.parameters()) {
      const StoredTensor* stored = last.find(name);
      if (stored == nullptr) continue;
      std::vector<float> expected(values.size());
      last.read(*stored, 0, expected);
      double difference = 0, norm = 0;
      for (std::size_t i = 0; i < values.size(); ++i)
        difference += std::pow(values[i] - expected[i], 2), norm += std::pow(expected[i], 2);
      EXPECT_LT(std::sqrt(difference / norm), 2e-3) << name;
    }
  }
};

constexpr Cuts kTiles{.vocabulary_rows = 96, .mlp_columns = 48, .head_strip = 24};

TEST_P(Peft, Curve) {
  const PeftCase peft(GetParam());
  check_curve(peft.base.batch, HeadMode::tiled, canonical_cuts(peft.base.config), nullptr, SavedValues::kept);
}
TEST_P(Peft, CurveInTilesWithAMicroBatchForEachSequence) {
  check_curve(1, HeadMode::fused, kTiles, nullptr, SavedValues::recomputed);
}
TEST_P(Peft, CurveOfThePlainLoops) {
  ReferenceBackend plain;
  check_curve(PeftCase(GetParam()).base.batch, HeadMode::tiled, kTiles, &plain, SavedValues::recomputed);
}

INSTANTIATE_TEST_SUITE_P(Lora, Peft, ::testing::Values("llama_gqa_all", "qwen2_qv"), [](const auto& peft) { return peft.param; });

class Adapters : public ::testing::TestWithParam<std::string> {
 protected:
  static BuildOptions options(DType dtype, std::optional<AdapterSpec> adapter) {
    BuildOptions options{dtype, kBatch, kSequence, HeadMode::tiled};
    options.adapter = std::move(adapter);
    return options;
  }
  static std::vector<std::int32_t> tokens() {
    std::vector<std::int32_t> tokens;
    for (std::int32_t i = 0; i < kBatch * kSequence; ++i) tokens.push_back(i * i * 7 % kVocabulary);
    return tokens;
  }
};

TEST_P(Adapters, WithBZeroTheLossIsTheBases) {
  const ModelConfig config = small_config(GetParam());
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const Cuts& cuts : {kManyCuts, kNoCuts}) {
      InCoreRunner base(config, options(dtype, std::nullopt), cuts),
          adapted(config, options(dtype, AdapterSpec{.rank = 4}), cuts);
      base.draw(1), adapted.draw(1);
      EXPECT_EQ(adapted.loss(tokens(), tokens()), base.loss(tokens(), tokens()));
    }
  }
}

// Gives B numbers, so that A's gradients are none of them zero.
void draw_all(InCoreRunner& runner) {
  runner.draw(1);
  std::map<std::string, std::vector<float>> directions;
  for (auto& [name, values] : runner.parameters()) {
    if (!name.ends_with("lora_B.weight")) continue;
    std::vector<float> direction = values;
    for (std::size_t i = 0; i < direction.size(); ++i) direction[i] = 0.05f * static_cast<float>(i * 37 % 101) - 2.5f;
    directions[name] = direction;
  }
  runner.move(directions, 0.1);
}

TEST_P(Adapters, EveryKernelIsThePlainLoops) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    ThreadPool pool(2);
    CpuBackend cpu(pool);
    ComparingBackend backend(cpu);
    InCoreRunner runner(small_config(GetParam()), options(dtype, AdapterSpec{.rank = 6, .scale = 0.7f}), kManyCuts, 2, &backend);
    draw_all(runner);
    for (const SavedValues saved : {SavedValues::kept, SavedValues::recomputed}) runner.backward(tokens(), tokens(), saved);
  }
}

TEST_P(Adapters, TilesChangeGradientsByRoundingAlone) {
  const ModelConfig config = small_config(GetParam());
  InCoreRunner whole(config, options(DType::float32, AdapterSpec{.rank = 5, .scale = 2}), kNoCuts),
      tiled(config, options(DType::float32, AdapterSpec{.rank = 5, .scale = 2}), kManyCuts);
  draw_all(whole), draw_all(tiled);
  whole.backward(tokens(), tokens()), tiled.backward(tokens(), tokens());
  const auto expected = whole.gradients(), found = tiled.gradients();
  for (const auto& [name, values] : expected) {
    if (!adapter_tensor_in(name)) continue;
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      difference += std::pow(found.at(name)[i] - values[i], 2), norm += std::pow(values[i], 2);
    EXPECT_GT(norm, 0) << name;
    EXPECT_LT(difference, 1e-8 * norm) << name;
  }
}

// What is dropped and what is kept depends on the key alone: a mask that is made again in the backward is the forward's.
TEST_P(Adapters, DropoutIsThePlainLoopsToo) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const Cuts& cuts : {kManyCuts, kNoCuts}) {
      ThreadPool pool(2);
      CpuBackend cpu(pool);
      ComparingBackend backend(cpu);
      const AdapterSpec spec{.rank = 6, .scale = 0.7f, .dropout = 0.3f};
      InCoreRunner runner(small_config(GetParam()), options(dtype, spec), cuts, 2, &backend);
      draw_all(runner);
      runner.set_dropout(77);
      const double kept = runner.backward(tokens(), tokens(), SavedValues::kept);
      EXPECT_EQ(runner.backward(tokens(), tokens(), SavedValues::recomputed), kept);
      runner.set_dropout(78);
      EXPECT_NE(runner.loss(tokens(), tokens()), kept);
    }
  }
}

TEST_P(Adapters, WithoutAKeyNothingIsDropped) {
  const ModelConfig config = small_config(GetParam());
  InCoreRunner plain(config, options(DType::bfloat16, AdapterSpec{.rank = 4}), kManyCuts),
      dropping(config, options(DType::bfloat16, AdapterSpec{.rank = 4, .dropout = 0.5f}), kManyCuts);
  draw_all(plain), draw_all(dropping);
  EXPECT_EQ(dropping.loss(tokens(), tokens()), plain.loss(tokens(), tokens()));
}

// Along the gradient the loss of one mask rises as the gradient says.
TEST_P(Adapters, GradientsOfDropoutAreSlopesOfTheLoss) {
  ModelConfig config = small_config(GetParam());
  config.experts_per_token = config.experts;  // where a row goes changes at once, which has no slope
  InCoreRunner runner(config, options(DType::float32, AdapterSpec{.rank = 5, .scale = 2, .dropout = 0.4f}), kManyCuts);
  draw_all(runner);
  runner.set_dropout(1234567);
  runner.backward(tokens(), tokens());
  std::map<std::string, std::vector<float>> gradient;
  double squares = 0;
  for (auto& [name, values] : runner.gradients()) {
    if (!adapter_tensor_in(name)) continue;
    for (const float g : values) squares += static_cast<double>(g) * g;
    gradient[name] = values;
  }
  const double step = 2e-3 / std::sqrt(squares);
  runner.move(gradient, step);
  const double above = runner.loss(tokens(), tokens());
  runner.move(gradient, -2 * step);
  const double below = runner.loss(tokens(), tokens());
  EXPECT_NEAR((above - below) / (2 * step), squares, 2e-2 * squares);
}

INSTANTIATE_TEST_SUITE_P(Families, Adapters, ::testing::ValuesIn(trained_families()),
                         [](const auto& family) { return family.param; });

TEST(Adapter, TheBackwardEndsAtTheLowestOne) {
  const ModelConfig config = small_config("llama");
  BuildOptions options{DType::bfloat16, kBatch, kSequence, HeadMode::tiled};
  options.adapter = AdapterSpec{.rank = 4, .targets = {"layers.1.mlp.down_proj"}};
  const CompiledModel model = build_model_with_cuts(config, options, kNoCuts);
  std::vector<std::string> with_backward;
  for (const Unit& unit : model.graph.units) {
    if (unit.goes_back()) with_backward.push_back(unit.name);
  }
  EXPECT_THAT(with_backward, ::testing::ElementsAre("layer 1 mlp", "final norm", "head tile 0"));
  const auto of = std::ranges::find(model.graph.units, "layer 1 mlp", &Unit::name);
  // dt = dy B, dB = dy^T t, dA = dt^T h, and h, which the activation's backward makes again from what the product gives it.
  int products = 0;
  for (const KernelCall& call : (*model.code[static_cast<std::size_t>(of - model.graph.units.begin())])[Pass::backward])
    products += std::holds_alternative<kernels::Product>(call.kernel);
  EXPECT_LE(products, 5);
  for (const ParameterBlock& block : model.graph.blocks) EXPECT_EQ(block.frozen, !block.of_adapter) << block.name;
}

TEST(Adapter, NamesAreThoseOfPeft) {
  EXPECT_EQ(adapter_tensor(layer_of_weight("model.layers.0.mlp.up_proj.weight"), Factor::b),
            "base_model.model.model.layers.0.mlp.up_proj.lora_B.weight");
  const auto found = adapter_tensor_in("base_model.model.transformer.h.3.attn.c_attn.lora_A.weight");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->layer, "transformer.h.3.attn.c_attn");
  EXPECT_EQ(found->factor, Factor::a);
  EXPECT_FALSE(adapter_tensor_in("base_model.model.lm_head.weight"));
  EXPECT_TRUE(adapts({.targets = {"q_proj"}}, "model.layers.0.self_attn.q_proj"));
  EXPECT_FALSE(adapts({.targets = {"proj"}}, "model.layers.0.self_attn.q_proj"));
}

}  // namespace
}  // namespace spillway::testing
