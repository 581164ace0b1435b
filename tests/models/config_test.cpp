#include "models/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "files/safetensors.h"
#include "models/catalogue/catalogue.h"
#include "tests/golden.h"
#include "tests/models/config_testing.h"
#include "tests/models/counted.h"

namespace spillway {
namespace {

using testing::HasSubstr;

TEST(Config, GoldenCasesCountTheirParameters) {
  for (const std::string& name : golden_names()) {
    const ModelConfig config = read_model_config(golden_directory(name) + "/config.json");
    std::int64_t stored = 0;
    const SafetensorsReader reader(golden_directory(name));
    for (const StoredTensor& tensor : reader.tensors()) {
      if (!config.is_text_half() || tensor.name.starts_with("language_model.")) stored += tensor.elements;
    }
    EXPECT_EQ(parameter_count(config), stored) << name;
    EXPECT_EQ(config.stored_dtype, DType::float32) << name;
  }
}

TEST(Config, ReadsGpt2) {
  const ModelConfig config = read_model_config(golden_directory("gpt2") + "/config.json");
  EXPECT_EQ(name_of(config.family), "gpt2");
  EXPECT_EQ(config.hidden, 48);
  EXPECT_EQ(config.layers, 3);
  EXPECT_EQ(config.heads, 4);
  EXPECT_EQ(config.kv_heads, 4);
  EXPECT_EQ(config.head_dim, 12);
  EXPECT_EQ(config.mlp_width, 192);
  EXPECT_EQ(config.vocab, 256);
  EXPECT_EQ(config.max_positions, 64);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.activation, Activation::gelu_tanh);
  EXPECT_EQ(config.rope.theta, 0);
  EXPECT_TRUE(config.qkv_bias && config.attention_output_bias && config.mlp_bias && config.tied_embeddings);
  EXPECT_DOUBLE_EQ(config.attention_scale(2), 1 / std::sqrt(12.0));
}

TEST(Config, ReadsQwen3WithItsOwnHeadDim) {
  const ModelConfig config = read_model_config(golden_directory("qwen3") + "/config.json");
  EXPECT_EQ(name_of(config.family), "qwen3");
  EXPECT_EQ(config.head_dim, 24);
  EXPECT_FALSE(config.qkv_bias || config.attention_output_bias || config.tied_embeddings);
  EXPECT_EQ(config.rope.theta, 1e6);
  EXPECT_EQ(config.windows, std::vector<std::int64_t>(2, 0));
}

TEST(Config, ReadsGemma2) {
  const ModelConfig config = read_model_config(golden_directory("gemma2") + "/config.json");
  EXPECT_EQ(name_of(config.family), "gemma2");
  EXPECT_EQ(config.hidden, 64);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.head_dim, 20);
  EXPECT_EQ(config.mlp_width, 144);
  EXPECT_EQ(config.activation, Activation::gelu_tanh);
  EXPECT_EQ(config.norm_eps, 1e-6);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_FALSE(config.qkv_bias || config.attention_output_bias || config.mlp_bias);
  EXPECT_EQ(config.rope.theta, 1e4);
  EXPECT_EQ(config.windows, (std::vector<std::int64_t>{12, 0, 12}));
  EXPECT_EQ(config.attention_softcap, 5);
  EXPECT_EQ(config.logit_softcap, 4);
  EXPECT_DOUBLE_EQ(config.attention_scale(1), 1 / std::sqrt(24.0));
  EXPECT_EQ(config.embedding_factor, 8);
}

TEST(Config, ReadsGemma3) {
  const ModelConfig config = read_model_config(golden_directory("gemma3") + "/config.json");
  EXPECT_EQ(name_of(config.family), "gemma3_text");
  EXPECT_EQ(config.family->qk_norm, QkNorm::each_head);
  EXPECT_EQ(config.windows, (std::vector<std::int64_t>{7, 0}));
  EXPECT_EQ(config.rope, (Rope{500, {RopeScaling::Kind::linear, 2}}));
  EXPECT_EQ(config.window_rope, Rope{50});
  EXPECT_EQ(config.attention_softcap, 0);
  EXPECT_EQ(config.logit_softcap, 0);
  EXPECT_DOUBLE_EQ(config.attention_scale(1), 1 / std::sqrt(24.0));
}

// Files from before transformers 5 say the same by other keys; their scaling applies only to layers without a window.
TEST(Config, Gemma3SaysItsRotationsInTwoWays) {
  const ModelConfig bare = parse({{"model_type", "gemma3_text"}});
  EXPECT_EQ(bare.rope, Rope{1e6});
  EXPECT_EQ(bare.window_rope, Rope{1e4});
  EXPECT_EQ(bare.windows[4], 4096);
  EXPECT_EQ(bare.windows[5], 0);
  EXPECT_EQ(bare.vocab, 262'208);
  const ModelConfig older = parse({{"model_type", "gemma3_text"},
                                   {"rope_theta", 500},
                                   {"rope_local_base_freq", 50},
                                   {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8}}},
                                   {"sliding_window_pattern", 2}});
  EXPECT_EQ(older.rope, (Rope{500, {RopeScaling::Kind::linear, 8}}));
  EXPECT_EQ(older.window_rope, Rope{50});
  EXPECT_EQ(older.windows[1], 0);
  const Json by_layer = {{"full_attention", {{"rope_type", "linear"}, {"factor", 8}, {"rope_theta", 500}}},
                         {"sliding_attention", {{"rope_theta", 50}}}};
  const ModelConfig newer = parse({{"model_type", "gemma3_text"}, {"rope_parameters", by_layer}});
  EXPECT_EQ(newer.rope, older.rope);
  EXPECT_EQ(newer.window_rope, older.window_rope);
}

// OLMo 3 before transformers 5 and since: only layers without a window have the scaling.
TEST(Config, Olmo3SaysItsRotationsInTwoWays) {
  const Json yarn = {{"rope_type", "yarn"}, {"factor", 8}, {"original_max_position_embeddings", 8192}};
  const ModelConfig older = parse({{"model_type", "olmo3"}, {"rope_theta", 1e5}, {"rope_scaling", yarn}});
  EXPECT_EQ(older.window_rope, Rope{1e5});
  EXPECT_EQ(older.rope.theta, 1e5);
  EXPECT_EQ(older.rope.scaling.kind, RopeScaling::Kind::yarn);
  EXPECT_NEAR(older.rope.scaling.attention_factor, 1.2079441541679836, 1e-15);
  EXPECT_EQ(older.windows[2], 4096);
  EXPECT_EQ(older.windows[3], 0);
  const Json by_layer = {{"full_attention", with(yarn, {{"rope_theta", 1e5}})}, {"sliding_attention", {{"rope_theta", 1e5}}}};
  const ModelConfig newer = parse({{"model_type", "olmo3"}, {"rope_parameters", by_layer}});
  EXPECT_EQ(newer.rope, older.rope);
  EXPECT_EQ(newer.window_rope, older.window_rope);
  EXPECT_EQ(parse({{"model_type", "olmo3"}}).window_rope, Rope{5e5});
}

TEST(Config, ReadsGlm4AndErnie) {
  const ModelConfig glm = parse({{"model_type", "glm4"}});
  EXPECT_EQ(glm.rope.rotated, 64);
  EXPECT_TRUE(glm.qkv_bias && !glm.attention_output_bias && !glm.mlp_bias);
  EXPECT_EQ(parse({{"model_type", "glm4"}, {"rope_parameters", {{"rope_theta", 1e4}}}}).rope.rotated, 64);
  EXPECT_EQ(parse({{"model_type", "glm4"}, {"rope_parameters", {{"partial_rotary_factor", 0.25}}}}).rope.rotated, 32);
  const ModelConfig ernie = parse({{"model_type", "ernie4_5"}, {"use_bias", true}});
  EXPECT_EQ(ernie.head_dim, 128);
  EXPECT_EQ(ernie.rope, Rope{5e5});
  EXPECT_TRUE(ernie.tied_embeddings && ernie.qkv_bias && ernie.attention_output_bias && ernie.mlp_bias);
  EXPECT_EQ(parse({{"model_type", "ernie4_5"}, {"head_dim", nullptr}}).head_dim, 64);
}

// The parts that other families do not have are off.
TEST(Config, PartsOfGemmaAreOthersNot) {
  for (const FamilyRow& family : families()) {
    if (family.model_type.find("gemma") != std::string_view::npos) continue;
    Json json = {{"model_type", family.model_type}};
    if (family.states_rope) json["rope_parameters"] = {{"rope_theta", 1e6}};
    const ModelConfig config = parse(json);
    EXPECT_EQ(family.norm_offset, 0) << family.model_type;
    EXPECT_EQ(config.window_rope.has_value(), family.model_type == "olmo3") << family.model_type;
    EXPECT_EQ(config.attention_softcap, 0) << family.model_type;
    EXPECT_EQ(config.logit_softcap, 0) << family.model_type;
    EXPECT_EQ(config.embedding_factor, 1) << family.model_type;
    const double scale = family.model_type.starts_with("granite") ? 1 : 1 / std::sqrt(static_cast<double>(config.head_dim));
    EXPECT_DOUBLE_EQ(config.attention_scale(0), scale) << family.model_type;
  }
}

TEST(Config, DefaultsAreThoseOfHuggingFace) {
  const ModelConfig gpt2 = parse({{"model_type", "gpt2"}});
  EXPECT_EQ(parameter_count(gpt2), 124'439'808);
  const ModelConfig llama = parse({{"model_type", "llama"}});
  EXPECT_EQ(parameter_count(llama), 6'738'415'616);
  EXPECT_EQ(llama.max_positions, 2048);
  EXPECT_EQ(llama.norm_eps, 1e-6);
  EXPECT_EQ(llama.rope.theta, 1e4);
  const ModelConfig mistral = parse({{"model_type", "mistral"}});
  EXPECT_EQ(parameter_count(mistral), 7'241'732'096);
  EXPECT_EQ(mistral.windows, std::vector<std::int64_t>(32, 4096));
  const ModelConfig qwen2 = parse({{"model_type", "qwen2"}});
  EXPECT_EQ(qwen2.mlp_width, 22016);
  EXPECT_EQ(qwen2.kv_heads, 32);
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.attention_output_bias);
  EXPECT_EQ(qwen2.windows, std::vector<std::int64_t>(32, 0));
  const ModelConfig qwen3 = parse({{"model_type", "qwen3"}});
  EXPECT_EQ(qwen3.head_dim, 128);
  EXPECT_EQ(qwen3.stored_dtype, DType::float32);
  const ModelConfig mixtral = parse({{"model_type", "mixtral"}});
  EXPECT_EQ(parameter_count(mixtral), 46'702'792'704);
  EXPECT_EQ(mixtral.rope.theta, 1e6);
  EXPECT_EQ(mixtral.windows, std::vector<std::int64_t>(32, 0));
  const ModelConfig gemma2 = parse({{"model_type", "gemma2"}});
  EXPECT_EQ(parameter_count(gemma2), 2'614'341'888);
  EXPECT_EQ(gemma2.max_positions, 8192);
  EXPECT_EQ(gemma2.norm_eps, 1e-6);
  EXPECT_EQ(gemma2.rope.theta, 1e4);
  EXPECT_EQ(gemma2.activation, Activation::gelu_tanh);
  EXPECT_EQ(gemma2.attention_softcap, 50);
  EXPECT_EQ(gemma2.logit_softcap, 30);
  EXPECT_DOUBLE_EQ(gemma2.attention_scale(0), 1 / 16.0);
  EXPECT_EQ(gemma2.embedding_factor, 48);
  EXPECT_EQ(gemma2.windows[24], 4096);
  EXPECT_EQ(gemma2.windows[25], 0);
}

TEST(Config, SaysWhatAMixtureIs) {
  const ModelConfig qwen = parse(with(small("qwen3_moe"), {{"num_hidden_layers", 4},
                                                           {"num_experts", 6},
                                                           {"num_experts_per_tok", 2},
                                                           {"norm_topk_prob", true},
                                                           {"moe_intermediate_size", 40},
                                                           {"decoder_sparse_step", 2},
                                                           {"mlp_only_layers", {3, 9}}}));
  EXPECT_TRUE(qwen.normalised_experts);
  EXPECT_EQ(qwen.expert_width, 40);
  EXPECT_EQ(qwen.dense_layers, (std::vector<bool>{true, false, true, true}));
  EXPECT_EQ(qwen.layers_with_experts(), 1);
  EXPECT_EQ(qwen.balance_coefficient, 0);  // only with output_router_logits, as in Hugging Face
  const ModelConfig olmoe = parse({{"model_type", "olmoe"}, {"output_router_logits", true}});
  EXPECT_EQ(olmoe.family->qk_norm, QkNorm::all_heads);
  EXPECT_FALSE(olmoe.normalised_experts);
  EXPECT_EQ(olmoe.balance_coefficient, 0.01);
  EXPECT_EQ(olmoe.padding_token, 1);
  EXPECT_EQ(olmoe.layers_with_experts(), 16);
}

TEST(Config, GptOss) {
  const ModelConfig config = catalogue_config("gpt-oss-20b");
  EXPECT_EQ(config.activation, Activation::clamped_swiglu);
  EXPECT_TRUE(config.family->sinks && config.qkv_bias && config.attention_output_bias && config.normalised_experts);
  EXPECT_EQ(config.windows[0], 128);
  EXPECT_EQ(config.windows[1], 0);
  EXPECT_FALSE(config.rope.scaling.truncate);
  EXPECT_EQ(config.balance_coefficient, 0);
}

// Newer files of transformers have num_local_experts where older ones have num_experts, and the other way round.
TEST(Config, BothSpellingsCountExperts) {
  for (const char* family : {"mixtral", "qwen3_moe"}) {
    for (const char* key : {"num_experts", "num_local_experts"}) {
      EXPECT_EQ(parse(with(small(family), {{key, 6}, {"num_experts_per_tok", 2}})).experts, 6) << family << " " << key;
    }
    const Json both = with(small(family), {{"num_experts", 6}, {"num_local_experts", 6}, {"num_experts_per_tok", 2}});
    EXPECT_EQ(parse(both).experts, 6) << family;
    EXPECT_THAT(refusal(with(both, {{"num_experts", 5}})), HasSubstr("they mean the same thing")) << family;
  }
}

TEST(Config, NullMeansTheOtherKeyAndNotTheDefault) {
  Json json = small("mistral");
  json["num_key_value_heads"] = nullptr;
  json["head_dim"] = nullptr;
  json["sliding_window"] = nullptr;
  const ModelConfig config = parse(json);
  EXPECT_EQ(config.kv_heads, 4);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.windows, std::vector<std::int64_t>(4, 0));
  const ModelConfig uncapped = parse(with(small("gemma2"), {{"attn_logit_softcapping", nullptr},
                                                            {"final_logit_softcapping", nullptr},
                                                            {"layer_types", nullptr},
                                                            {"use_bidirectional_attention", nullptr}}));
  EXPECT_EQ(uncapped.attention_softcap, 0);
  EXPECT_EQ(uncapped.logit_softcap, 0);
  EXPECT_EQ(uncapped.windows, (std::vector<std::int64_t>{4096, 0, 4096, 0}));
}

TEST(Config, OlderAndNewerKeysSayTheSame) {
  const Json older = with(small("llama"), {{"rope_theta", 500000.0},
                                           {"rope_scaling",
                                            {{"factor", 8.0},
                                             {"low_freq_factor", 1.0},
                                             {"high_freq_factor", 4.0},
                                             {"original_max_position_embeddings", 64},
                                             {"rope_type", "llama3"}}},
                                           {"torch_dtype", "bfloat16"}});
  const Json newer = with(small("llama"), {{"rope_parameters",
                                            {{"rope_theta", 500000.0},
                                             {"factor", 8.0},
                                             {"low_freq_factor", 1.0},
                                             {"high_freq_factor", 4.0},
                                             {"original_max_position_embeddings", 64},
                                             {"rope_type", "llama3"}}},
                                           {"dtype", "bfloat16"}});
  for (const Json& json : {older, newer}) {
    const ModelConfig config = parse(json);
    EXPECT_EQ(config.rope.theta, 500000.0);
    EXPECT_EQ(config.rope.scaling, (RopeScaling{RopeScaling::Kind::llama3, 8, 1, 4, 64}));
    EXPECT_EQ(config.stored_dtype, DType::bfloat16);
  }
  const ModelConfig linear = parse(with(small("llama"), {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}));
  EXPECT_EQ(linear.rope.scaling.kind, RopeScaling::Kind::linear);
  EXPECT_EQ(linear.rope.scaling.factor, 2);
  EXPECT_EQ(linear.rope.theta, 1e4);
}

TEST(Config, WindowsByLayer) {
  const Json qwen = with(small("qwen2"), {{"use_sliding_window", true}, {"sliding_window", 32}, {"max_window_layers", 3}});
  EXPECT_EQ(parse(qwen).windows, (std::vector<std::int64_t>{0, 0, 0, 32}));
  EXPECT_EQ(parse(with(qwen, {{"use_sliding_window", false}})).windows, (std::vector<std::int64_t>{0, 0, 0, 0}));
  const Json types = {"sliding_attention", "full_attention", "sliding_attention", "full_attention"};
  EXPECT_EQ(parse(with(qwen, {{"layer_types", types}})).windows, (std::vector<std::int64_t>{32, 0, 32, 0}));
  EXPECT_EQ(parse(with(small("mistral"), {{"sliding_window", 16}})).windows, (std::vector<std::int64_t>{16, 16, 16, 16}));
  const Json gemma = with(small("gemma2"), {{"sliding_window", 16}});
  EXPECT_EQ(parse(gemma).windows, (std::vector<std::int64_t>{16, 0, 16, 0}));
  EXPECT_EQ(parse(with(gemma, {{"num_hidden_layers", 1}})).windows, (std::vector<std::int64_t>{16}));
  const Json others = {"full_attention", "full_attention", "sliding_attention", "sliding_attention"};
  EXPECT_EQ(parse(with(gemma, {{"layer_types", others}})).windows, (std::vector<std::int64_t>{0, 0, 16, 16}));
  const Json full = {"full_attention", "full_attention", "full_attention", "full_attention"};
  EXPECT_EQ(parse(with(gemma, {{"sliding_window", nullptr}, {"layer_types", full}})).windows,
            (std::vector<std::int64_t>{0, 0, 0, 0}));
  // Llama has no window, whatever the file says.
  EXPECT_EQ(parse(with(small("llama"), {{"sliding_window", 16}})).windows, (std::vector<std::int64_t>{0, 0, 0, 0}));
}

TEST(Config, BiasesByFamily) {
  const ModelConfig llama = parse(with(small("llama"), {{"attention_bias", true}, {"mlp_bias", true}}));
  EXPECT_TRUE(llama.qkv_bias && llama.attention_output_bias && llama.mlp_bias);
  // q + k + v + o, then gate + up + down, a layer.
  EXPECT_EQ(parameter_count(llama) - parameter_count(parse(small("llama"))), 4 * (64 + 32 + 32 + 64 + 160 + 160 + 64));
  const ModelConfig qwen3 = parse(with(small("qwen3"), {{"attention_bias", true}}));
  EXPECT_TRUE(qwen3.qkv_bias && qwen3.attention_output_bias);
  const ModelConfig gemma = parse(with(small("gemma2"), {{"attention_bias", true}, {"head_dim", 16}}));
  EXPECT_TRUE(gemma.qkv_bias && gemma.attention_output_bias && !gemma.mlp_bias);
}

TEST(Config, Gemma2HasItsOwnWordForTheActivation) {
  const Json json = small("gemma2");
  EXPECT_EQ(parse(with(json, {{"hidden_act", "silu"}})).activation, Activation::gelu_tanh);
  EXPECT_EQ(parse(with(json, {{"hidden_act", "silu"}, {"hidden_activation", "gelu"}})).activation, Activation::gelu_erf);
}

TEST(Config, Gpt2Scales) {
  const ModelConfig inverse = parse(with(small("gpt2"), {{"scale_attn_by_inverse_layer_idx", true}}));
  EXPECT_DOUBLE_EQ(inverse.attention_scale(0), 1 / std::sqrt(12.0));
  EXPECT_DOUBLE_EQ(inverse.attention_scale(2), 1 / std::sqrt(12.0) / 3);
  EXPECT_DOUBLE_EQ(parse(with(small("gpt2"), {{"scale_attn_weights", false}})).attention_scale(1), 1);
}

TEST(Config, CommonWordsForGpt2Sizes) {
  const ModelConfig config =
      parse({{"model_type", "gpt2"}, {"hidden_size", 96}, {"num_attention_heads", 6}, {"num_hidden_layers", 2}});
  EXPECT_EQ(config.hidden, 96);
  EXPECT_EQ(config.heads, 6);
  EXPECT_EQ(config.layers, 2);
  EXPECT_THAT(refusal(with(small("gpt2"), {{"hidden_size", 96}})), HasSubstr("n_embd is 48, but hidden_size is 96"));
}

TEST(Config, ArchitecturesAloneName) {
  Json json = small("qwen2");
  json.erase("model_type");
  json["architectures"] = {"Qwen2ForCausalLM"};
  EXPECT_EQ(name_of(parse(json).family), "qwen2");
}

TEST(Config, DropoutIsNoted) {
  const ModelConfig config = parse(with(small("gpt2"), {{"resid_pdrop", 0.1}, {"embd_pdrop", 0.0}}));
  ASSERT_EQ(config.notes.size(), 1U);
  EXPECT_THAT(config.notes[0], HasSubstr("resid_pdrop is 0.1"));
}

TEST(Config, ExportKeepsUnknownKeysAndOrder) {
  const std::string text =
      R"({"zeta": [1, 2], "model_type": "llama", "rms_norm_eps": 1e-05, "torch_dtype": "float32", "alpha": {"b": null}})";
  const std::string exported = config_json(parse_model_config(text, "config.json"), DType::bfloat16);
  const auto json = nlohmann::ordered_json::parse(exported);
  EXPECT_EQ(json["torch_dtype"], "bfloat16");
  EXPECT_FALSE(json.contains("dtype"));
  EXPECT_EQ(json["zeta"], Json({1, 2}));
  EXPECT_TRUE(json["alpha"]["b"].is_null());
  EXPECT_EQ(json["architectures"], Json::array({"LlamaForCausalLM"}));
  EXPECT_LT(exported.find("zeta"), exported.find("model_type"));
  EXPECT_THAT(exported, HasSubstr("1e-05"));
  const ModelConfig again = parse_model_config(exported, "config.json");
  EXPECT_EQ(again.stored_dtype, DType::bfloat16);
  const ModelConfig qwen3 = read_model_config(golden_directory("qwen3") + "/config.json");
  EXPECT_EQ(Json::parse(config_json(qwen3, DType::float16))["dtype"], "float16");
}

}  // namespace
}  // namespace spillway
