#include "models/catalogue/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "files/strict_json.h"
#include "memory/base/error.h"
#include "tests/models/counted.h"

namespace spillway {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

TEST(Catalogue, FilesAreStrictJson) {
  for (const EmbeddedFile& family : catalogue_files())
    EXPECT_NO_THROW((void)parse_strict_json(family.text, std::string(family.name))) << family.name;
}

const std::map<std::string_view, std::int64_t> kPublished = {
    {"gpt2", 124'439'808},
    {"gpt2-medium", 354'823'168},
    {"gpt2-large", 774'030'080},
    {"gpt2-xl", 1'557'611'200},
    {"smollm2-135m", 134'515'008},
    {"smollm2-360m", 361'821'120},
    {"smollm2-1.7b", 1'711'376'384},
    {"tinyllama-1.1b", 1'100'048'384},
    {"llama-3.2-1b", 1'235'814'400},
    {"llama-3.2-3b", 3'212'749'824},
    {"llama-2-7b", 6'738'415'616},
    {"llama-2-13b", 13'015'864'320},
    {"llama-2-70b", 68'976'648'192},
    {"llama-3.1-8b", 8'030'261'248},
    {"llama-3.1-70b", 70'553'706'496},
    {"llama-3.1-405b", 405'853'388'800},
    {"mistral-7b-v0.1", 7'241'732'096},
    {"mistral-7b-v0.3", 7'248'023'552},
    {"qwen2.5-0.5b", 494'032'768},
    {"qwen2.5-1.5b", 1'543'714'304},
    {"qwen2.5-3b", 3'085'938'688},
    {"qwen2.5-7b", 7'615'616'512},
    {"qwen2.5-14b", 14'770'033'664},
    {"qwen2.5-32b", 32'763'876'352},
    {"qwen2.5-72b", 72'706'203'648},
    {"qwen3-0.6b", 596'049'920},  // the tied head counts once
    {"qwen3-1.7b", 1'720'574'976},
    {"qwen3-4b", 4'022'468'096},
    {"qwen3-8b", 8'190'735'360},
    {"qwen3-14b", 14'768'307'200},
    {"qwen3-32b", 32'762'123'264},
    {"mixtral-8x7b", 46'702'792'704},
    {"mixtral-8x22b", 140'620'634'112},
    {"granite-3.1-1b-a400m", 1'334'628'352},
    {"granite-3.1-3b-a800m", 3'298'793'472},
    {"qwen1.5-moe-a2.7b", 14'315'784'192},
    {"qwen3-30b-a3b", 30'532'122'624},
    {"olmoe-1b-7b", 6'919'161'856},
    {"gpt-oss-20b", 20'914'757'184},
    {"gpt-oss-120b", 116'829'156'672},
    {"qwen3-235b-a22b", 235'093'634'560},
    {"ministral-8b", 8'019'808'256},
    {"ministral-3-8b", 8'489'553'920},
    {"gemma-2b", 2'506'172'416},
    {"gemma-7b", 8'537'680'896},
    {"vaultgemma-1b", 1'038'741'120},
    {"phi-3-mini-4k", 3'821'079'552},
    {"phi-4", 14'659'507'200},
    {"phi-4-mini", 3'836'021'760},
    {"olmo-2-1b", 1'484'916'736},
    {"olmo-2-7b", 7'298'617'344},
    {"olmo-3-7b", 7'298'011'136},
    {"glm-4-9b-0414", 9'400'279'040},
    {"ernie-4.5-0.3b", 360'748'032},
    {"smollm3-3b", 3'075'098'624},
    {"granite-3.3-2b", 2'533'539'840},
    {"seed-oss-36b", 36'151'104'512},
    {"gemma-2-2b", 2'614'341'888},
    {"gemma-2-9b", 9'241'705'984},
    {"gemma-2-27b", 27'227'128'320},
    {"gemma-3-270m", 268'098'176},
    {"gemma-3-1b", 999'885'952},
};

TEST(Catalogue, ParameterCountsAreThePublishedOnes) {
  const std::span<const CatalogueEntry> all = catalogue();
  EXPECT_EQ(all.size(), kPublished.size());
  for (const CatalogueEntry& entry : all) {
    ASSERT_TRUE(kPublished.contains(entry.name)) << entry.name;
    EXPECT_EQ(parameter_count(catalogue_config(entry.name)), kPublished.at(entry.name)) << entry.name;
  }
}

// As the models' names have it: 12.9 B and 39.1 B active parameters per token for Mixtral, 3.3 B and 22.2 B for Qwen.
TEST(Catalogue, ActiveParametersAreThoseOfATokensExperts) {
  const auto billions = [](std::string_view name) {
    return static_cast<double>(active_parameter_count(catalogue_config(name))) / 1e9;
  };
  EXPECT_NEAR(billions("mixtral-8x7b"), 12.9, 0.05);
  EXPECT_NEAR(billions("mixtral-8x22b"), 39.1, 0.1);
  EXPECT_NEAR(billions("qwen3-30b-a3b"), 3.3, 0.06);
  EXPECT_NEAR(billions("qwen3-235b-a22b"), 22.2, 0.1);
  EXPECT_EQ(active_parameter_count(catalogue_config("gpt2")), parameter_count(catalogue_config("gpt2")));
}

TEST(Catalogue, ArithmeticOfAFew) {
  const ModelConfig llama = catalogue_config("llama-3.1-8b");
  EXPECT_EQ(llama.rope.scaling, (RopeScaling{RopeScaling::Kind::llama3, 8, 1, 4, 8192}));
  EXPECT_EQ(llama.rope.theta, 500'000);
  EXPECT_EQ(catalogue_config("mistral-7b-v0.1").windows.front(), 4096);
  EXPECT_EQ(catalogue_config("mistral-7b-v0.3").windows.front(), 0);
  EXPECT_EQ(catalogue_config("qwen2.5-7b").windows.back(), 0);
  EXPECT_EQ(catalogue_config("qwen3-4b").head_dim, 128);
  EXPECT_EQ(catalogue_config("gemma-2-9b").windows[40], 4096);
  EXPECT_EQ(catalogue_config("gemma-2-9b").windows[41], 0);
  EXPECT_DOUBLE_EQ(catalogue_config("gemma-2-27b").attention_scale(0), 1 / 12.0);
  const ModelConfig gemma3 = catalogue_config("gemma-3-1b");
  EXPECT_EQ(gemma3.windows[4], 512);
  EXPECT_EQ(gemma3.windows[5], 0);
  EXPECT_EQ(gemma3.rope.theta, 1e6);
  EXPECT_EQ(gemma3.window_rope->theta, 1e4);
  EXPECT_EQ(catalogue_config("smollm2-135m").stored_dtype, DType::bfloat16);
}

TEST(Catalogue, EveryEntryExportsAsItReads) {
  for (const CatalogueEntry& entry : catalogue()) {
    const ModelConfig config = catalogue_config(entry.name);
    EXPECT_TRUE(config.notes.empty()) << entry.name;
    const ModelConfig again = parse_model_config(config_json(config, DType::float16), "exported");
    EXPECT_EQ(parameter_count(again), parameter_count(config)) << entry.name;
    EXPECT_EQ(again.stored_dtype, DType::float16) << entry.name;
  }
}

std::string refusal(const std::string& name) {
  try {
    static_cast<void>(resolve_model(name));
  } catch (const InputError& error) {
    EXPECT_EQ(error.exit_code(), 2);
    return std::string(error.what()) + " | " + error.help();
  }
  return "";
}

class Resolve : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(directory_); }
  void TearDown() override { fs::remove_all(directory_); }
  void write(const std::string& name, const std::string& text) { std::ofstream(directory_ / name) << text; }

  fs::path directory_ = fs::path(testing::TempDir()) / ("resolve_" + std::to_string(::getpid()));
};

TEST_F(Resolve, NamesAndNearNames) {
  const ResolvedModel model = resolve_model("SmolLM2-135M");
  EXPECT_EQ(model.config.hidden, 576);
  EXPECT_TRUE(model.directory.empty());
  EXPECT_THAT(refusal("smolm2-135"), HasSubstr("nearest are smollm2-135m"));
  EXPECT_THAT(refusal("qwen3-8"), HasSubstr("qwen3-8b"));
  EXPECT_THAT(refusal("dir/gpt2"), HasSubstr("no such file or directory"));
  EXPECT_THAT(refusal(""), HasSubstr("nearest are"));
}

TEST_F(Resolve, DirectoryWithWeights) {
  const std::string golden = std::string(SPILLWAY_TEST_DATA) + "/golden/gpt2";
  const ResolvedModel model = resolve_model(golden);
  EXPECT_EQ(name_of(model.config.family), "gpt2");
  EXPECT_EQ(model.directory, golden);
  EXPECT_TRUE(resolve_model(golden + "/config.json").directory.empty());
  EXPECT_THAT(refusal(golden + "/model.safetensors"), HasSubstr("not a config.json"));
}

TEST_F(Resolve, DirectoryWithoutWeightsOrWithOthers) {
  EXPECT_THAT(refusal(directory_), HasSubstr("has no config.json"));
  write("config.json", R"({"model_type": "gpt2"})");
  EXPECT_TRUE(resolve_model(directory_).directory.empty());
  write("pytorch_model.bin", "x");
  EXPECT_THAT(refusal(directory_), HasSubstr("has pytorch_model.bin but neither model.safetensors"));
  write("model.safetensors", "x");
  EXPECT_EQ(resolve_model(directory_).directory, directory_);
}

TEST_F(Resolve, WeightsThatWereAskedFor) {
  write("config.json", R"({"model_type": "gpt2"})");
  EXPECT_THROW(resolve_model(directory_, Weights::of_directory), InputError);
  EXPECT_TRUE(resolve_model(directory_, Weights::drawn).directory.empty());
  EXPECT_TRUE(resolve_model(directory_ / "config.json", Weights::of_directory).directory.empty());
  for (const char* const name : {"model.pth", "Weights.PT", "tf_model.h5", "flax_model.msgpack", "pytorch_model.bin.index.json",
                                 "model.gguf", "model.ckpt.index", "other.safetensors"}) {
    write(name, "x");
    EXPECT_THAT(refusal(directory_), HasSubstr(std::string("has ") + name));
    EXPECT_TRUE(resolve_model(directory_, Weights::drawn).directory.empty());
    fs::remove(directory_ / name);
  }
}

}  // namespace
}  // namespace spillway
