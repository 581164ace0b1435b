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

#include "memory/error.h"
#include "models/safetensors.h"

namespace spillway {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

ModelConfig parse(const Json& json) { return parse_model_config(json.dump(), "config.json"); }

Json small(const char* model_type) {
  if (std::string_view(model_type) == "gpt2")
    return {{"model_type", "gpt2"}, {"n_embd", 48}, {"n_layer", 3}, {"n_head", 4}, {"vocab_size", 256}};
  return {{"model_type", model_type},    {"hidden_size", 64},        {"intermediate_size", 160}, {"num_hidden_layers", 4},
          {"num_attention_heads", 4},    {"num_key_value_heads", 2}, {"vocab_size", 256},        {"max_position_embeddings", 128},
          {"tie_word_embeddings", false}};
}

Json with(Json json, const Json& changes) {
  json.update(changes);
  return json;
}

std::string golden(const std::string& name) { return std::string(SPILLWAY_TEST_DATA) + "/golden/" + name; }

// Text of the error, or "" where there was none.
std::string refusal(const std::string& text) {
  try {
    static_cast<void>(parse_model_config(text, "dir/config.json"));
  } catch (const InputError& error) {
    EXPECT_EQ(error.exit_code(), 2);
    EXPECT_THAT(error.what(), HasSubstr("dir/config.json"));
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return std::string(error.what()) + " | " + error.help();
  }
  return "";
}
std::string refusal(const Json& json) { return refusal(json.dump()); }

TEST(Config, GoldenCasesCountTheirParameters) {
  const std::pair<const char*, std::int64_t> cases[] = {
      {"gpt2", 100'272}, {"llama_gqa", 119'104}, {"qwen2", 100'928}, {"qwen3", 125'344}, {"gemma2", 146'240}};
  for (const auto& [name, parameters] : cases) {
    const ModelConfig config = read_model_config(golden(name) + "/config.json");
    EXPECT_EQ(parameter_count(config), parameters) << name;
    std::int64_t stored = 0;
    const SafetensorsReader reader(golden(name));
    for (const StoredTensor& tensor : reader.tensors()) stored += tensor.elements;
    EXPECT_EQ(stored, parameters) << name;
    EXPECT_EQ(config.stored_dtype, DType::float32) << name;
  }
}

TEST(Config, ReadsGpt2) {
  const ModelConfig config = read_model_config(golden("gpt2/config.json"));
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
  EXPECT_EQ(config.rope_theta, 0);
  EXPECT_TRUE(config.qkv_bias && config.attention_output_bias && config.mlp_bias && config.tied_embeddings);
  EXPECT_TRUE(config.learned_positions && !config.gated_mlp && config.norm == NormKind::layer);
  EXPECT_DOUBLE_EQ(config.attention_scale(2), 1 / std::sqrt(12.0));
}

TEST(Config, ReadsQwen3WithItsOwnHeadDim) {
  const ModelConfig config = read_model_config(golden("qwen3/config.json"));
  EXPECT_EQ(name_of(config.family), "qwen3");
  EXPECT_EQ(config.head_dim, 24);
  EXPECT_TRUE(config.qk_norm);
  EXPECT_FALSE(config.qkv_bias || config.attention_output_bias || config.tied_embeddings);
  EXPECT_EQ(config.rope_theta, 1e6);
  EXPECT_EQ(config.windows, std::vector<std::int64_t>(2, 0));
}

TEST(Config, ReadsGemma2) {
  const ModelConfig config = read_model_config(golden("gemma2/config.json"));
  EXPECT_EQ(name_of(config.family), "gemma2");
  EXPECT_EQ(config.hidden, 64);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.head_dim, 20);
  EXPECT_EQ(config.mlp_width, 144);
  EXPECT_EQ(config.activation, Activation::gelu_tanh);
  EXPECT_EQ(config.norm, NormKind::rms);
  EXPECT_EQ(config.norm_offset, 1);
  EXPECT_EQ(config.norm_eps, 1e-6);
  EXPECT_TRUE(config.post_norms && config.gated_mlp && config.tied_embeddings);
  EXPECT_FALSE(config.qkv_bias || config.attention_output_bias || config.mlp_bias || config.qk_norm || config.learned_positions);
  EXPECT_EQ(config.rope_theta, 1e4);
  EXPECT_EQ(config.windows, (std::vector<std::int64_t>{12, 0, 12}));
  EXPECT_EQ(config.attention_softcap, 5);
  EXPECT_EQ(config.logit_softcap, 4);
  EXPECT_DOUBLE_EQ(config.attention_scale(1), 1 / std::sqrt(24.0));
  EXPECT_EQ(config.embedding_factor, 8);
}

// What the others do not have is off.
TEST(Config, PartsOfGemma2AreOthersNot) {
  for (const FamilyRow& family : families()) {
    if (family.model_type == "gemma2") continue;
    const ModelConfig config = parse({{"model_type", family.model_type}});
    EXPECT_FALSE(config.post_norms) << family.model_type;
    EXPECT_EQ(config.norm_offset, 0) << family.model_type;
    EXPECT_EQ(config.attention_softcap, 0) << family.model_type;
    EXPECT_EQ(config.logit_softcap, 0) << family.model_type;
    EXPECT_EQ(config.embedding_factor, 1) << family.model_type;
    EXPECT_DOUBLE_EQ(config.attention_scale(0), 1 / std::sqrt(static_cast<double>(config.head_dim))) << family.model_type;
  }
}

TEST(Config, DefaultsAreThoseOfHuggingFace) {
  const ModelConfig gpt2 = parse({{"model_type", "gpt2"}});
  EXPECT_EQ(parameter_count(gpt2), 124'439'808);
  const ModelConfig llama = parse({{"model_type", "llama"}});
  EXPECT_EQ(parameter_count(llama), 6'738'415'616);
  EXPECT_EQ(llama.max_positions, 2048);
  EXPECT_EQ(llama.norm_eps, 1e-6);
  EXPECT_EQ(llama.rope_theta, 1e4);
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
  EXPECT_EQ(mixtral.rope_theta, 1e6);
  EXPECT_EQ(mixtral.windows, std::vector<std::int64_t>(32, 0));
  const ModelConfig gemma2 = parse({{"model_type", "gemma2"}});
  EXPECT_EQ(parameter_count(gemma2), 2'614'341'888);
  EXPECT_EQ(gemma2.max_positions, 8192);
  EXPECT_EQ(gemma2.norm_eps, 1e-6);
  EXPECT_EQ(gemma2.rope_theta, 1e4);
  EXPECT_EQ(gemma2.activation, Activation::gelu_tanh);
  EXPECT_EQ(gemma2.attention_softcap, 50);
  EXPECT_EQ(gemma2.logit_softcap, 30);
  EXPECT_DOUBLE_EQ(gemma2.attention_scale(0), 1 / 16.0);
  EXPECT_EQ(gemma2.embedding_factor, 48);
  EXPECT_EQ(gemma2.windows[24], 4096);
  EXPECT_EQ(gemma2.windows[25], 0);
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
    EXPECT_EQ(config.rope_theta, 500000.0);
    EXPECT_EQ(config.rope_scaling, (RopeScaling{RopeScaling::Kind::llama3, 8, 1, 4, 64}));
    EXPECT_EQ(config.stored_dtype, DType::bfloat16);
  }
  const ModelConfig linear = parse(with(small("llama"), {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}));
  EXPECT_EQ(linear.rope_scaling.kind, RopeScaling::Kind::linear);
  EXPECT_EQ(linear.rope_scaling.factor, 2);
  EXPECT_EQ(linear.rope_theta, 1e4);
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

TEST(Config, BothWordsForTheActivationOfGemma2) {
  const Json json = small("gemma2");
  EXPECT_EQ(parse(with(json, {{"hidden_act", "gelu"}})).activation, Activation::gelu_erf);
  EXPECT_EQ(parse(with(json, {{"hidden_act", "silu"}, {"hidden_activation", "silu"}})).activation, Activation::silu);
  EXPECT_THAT(refusal(with(json, {{"hidden_act", "gelu"}, {"hidden_activation", "gelu_pytorch_tanh"}})),
              HasSubstr("hidden_activation is \"gelu_pytorch_tanh\", but hidden_act is \"gelu\"; they mean the same thing"));
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
  EXPECT_EQ(Json::parse(config_json(read_model_config(golden("qwen3/config.json")), DType::float16))["dtype"], "float16");
}

struct Hostile {
  const char* model_type;
  Json changes;
  const char* message;
};

TEST(Config, RefusesWhatMakesNoSense) {
  const double infinite = 1e300;
  const Hostile cases[] = {
      {"llama", {{"hidden_size", -3}}, "hidden_size is -3; a whole number from 1 to 1048576 is allowed"},
      {"llama", {{"hidden_size", 0}}, "hidden_size is 0"},
      {"llama", {{"hidden_size", true}}, "hidden_size is true"},
      {"llama", {{"hidden_size", 64.0}}, "hidden_size is 64.0"},
      {"llama", {{"hidden_size", "64"}}, "hidden_size is \"64\""},
      {"llama", {{"hidden_size", nullptr}}, "hidden_size is null; a value is needed"},
      {"llama", {{"hidden_size", 18446744073709551615U}}, "hidden_size is 18446744073709551615"},
      {"llama", {{"hidden_size", 1 << 21}}, "hidden_size is 2097152"},
      {"llama", {{"num_hidden_layers", 10001}}, "num_hidden_layers is 10001; a whole number from 1 to 10000"},
      {"llama", {{"vocab_size", std::int64_t{1} << 40}}, "vocab_size is 1099511627776; a whole number from 1 to 2147483648"},
      {"llama", {{"max_position_embeddings", -1}}, "max_position_embeddings is -1"},
      {"llama", {{"num_attention_heads", 3}}, "num_attention_heads is 3; it must divide hidden_size, 64"},
      {"llama", {{"num_key_value_heads", 3}}, "num_key_value_heads is 3; it must divide num_attention_heads, 4"},
      {"llama", {{"num_key_value_heads", 8}}, "num_key_value_heads is 8; it must divide num_attention_heads, 4"},
      {"llama", {{"head_dim", 15}}, "head_dim is 15; rotary positions need an even number"},
      {"llama", {{"num_attention_heads", 65536}, {"num_key_value_heads", 1}, {"head_dim", 65536}}, "it may be at most 4194304"},
      {"llama", {{"rms_norm_eps", 0}}, "rms_norm_eps is 0"},
      {"llama", {{"rms_norm_eps", -1e-5}}, "rms_norm_eps is -1e-05"},
      {"llama", {{"rope_theta", infinite}}, "rope_theta is 1e+300"},
      {"llama", {{"rope_theta", 0}}, "rope_theta is 0"},
      {"llama", {{"initializer_range", 2}}, "initializer_range is 2"},
      {"llama", {{"hidden_act", "relu"}}, "hidden_act is \"relu\"; silu, gelu"},
      {"llama", {{"tie_word_embeddings", 1}}, "tie_word_embeddings is 1; true or false"},
      {"llama", {{"attention_bias", "yes"}}, "attention_bias is \"yes\""},
      {"llama", {{"dtype", "float8"}}, "dtype is \"float8\"; float32, bfloat16 and float16"},
      {"llama", {{"dtype", "float32"}, {"torch_dtype", "bfloat16"}}, "they mean the same thing"},
      {"llama", {{"rope_scaling", 3}}, "rope_scaling is 3; an object or null"},
      {"llama",
       {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}},
       "rope_scaling.type is \"dynamic\"; default, linear and llama3"},
      {"llama", {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}}}}, "rope_scaling.rope_type is \"yarn\""},
      {"llama", {{"rope_parameters", {{"rope_type", "longrope"}}}}, "rope_parameters.rope_type is \"longrope\""},
      {"llama", {{"rope_scaling", {{"rope_type", "linear"}}}}, "rope_scaling.factor is missing; linear scaling needs it"},
      {"llama", {{"rope_scaling", {{"rope_type", "linear"}, {"factor", -2}}}}, "rope_scaling.factor is -2"},
      {"llama",
       {{"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 4}, {"high_freq_factor", 4}}}},
       "it must be more than low_freq_factor, 4"},
      {"llama", {{"rope_parameters", {{"rope_theta", "big"}}}}, "rope_parameters.rope_theta is \"big\""},
      {"llama", {{"partial_rotary_factor", 0.5}}, "partial_rotary_factor is 0.5; only 1"},
      {"llama", {{"quantization_config", Json::object()}}, "quantized weights cannot be trained"},
      {"llama", {{"num_local_experts", 8}}, "num_local_experts is 8: llama has no experts"},
      {"llama", {{"architectures", {"LlamaForSequenceClassification"}}}, "LlamaForCausalLM can be trained"},
      {"llama", {{"architectures", "LlamaForCausalLM"}}, "a list of names is allowed"},
      {"mixtral", {{"num_local_experts", 0}}, "num_local_experts is 0; a whole number from 1"},
      {"mixtral", {{"num_local_experts", 4}, {"num_experts_per_tok", 5}}, "num_experts_per_tok is 5; a whole number from 1 to 4"},
      {"mixtral",
       {{"num_local_experts", 1024}, {"intermediate_size", 1 << 15}},
       "times the width of an expert, 32768, it may be at most 16777216"},
      {"qwen3_moe", {{"decoder_sparse_step", 2}}, "decoder_sparse_step is 2; only 1 is supported"},
      {"qwen3_moe", {{"mlp_only_layers", {0}}}, "mlp_only_layers is"},
      {"qwen3_moe", {{"n_routed_experts", 8}}, "n_routed_experts is 8: qwen3_moe has no experts"},
      {"bert", Json::object(), "model_type is \"bert\": unknown architecture; known are gpt2, llama, mistral, qwen2, qwen3"},
      {"qwen2", {{"layer_types", {"full_attention"}}}, "a list of 4 names, one a layer"},
      {"qwen2",
       {{"layer_types", {"full_attention", "full_attention", "full_attention", "chunked_attention"}}},
       "has \"chunked_attention\" for layer 3"},
      {"qwen2",
       {{"layer_types", {"sliding_attention", "full_attention", "full_attention", "full_attention"}}},
       "has sliding_attention for layer 0, but there is no sliding window"},
      {"mistral", {{"sliding_window", 0}}, "sliding_window is 0"},
      {"mistral",
       {{"sliding_window", 8}, {"layer_types", {"full_attention", "full_attention", "full_attention", "full_attention"}}},
       "a Mistral model has its sliding_window 8 in every layer"},
      {"mixtral",
       {{"sliding_window", 8}, {"layer_types", {"full_attention", "full_attention", "full_attention", "full_attention"}}},
       "a Mixtral model has its sliding_window 8 in every layer"},
      {"gemma2", {{"hidden_size", "64"}}, "hidden_size is \"64\""},
      {"gemma2", {{"num_key_value_heads", 3}}, "num_key_value_heads is 3; it must divide num_attention_heads, 4"},
      {"gemma2", {{"num_key_value_heads", nullptr}}, "num_key_value_heads is null; a value is needed"},
      {"gemma2", {{"head_dim", nullptr}}, "head_dim is null; a value is needed"},
      {"gemma2", {{"head_dim", 15}}, "head_dim is 15; rotary positions need an even number"},
      {"gemma2", {{"head_dim", 0}}, "head_dim is 0"},
      {"gemma2", {{"hidden_activation", nullptr}}, "hidden_activation is null; a value is needed"},
      {"gemma2", {{"hidden_activation", "relu"}}, "hidden_activation is \"relu\"; silu, gelu"},
      {"gemma2", {{"hidden_act", "relu"}}, "hidden_act is \"relu\"; silu, gelu"},
      {"gemma2", {{"hidden_activation", 3}}, "hidden_activation is 3; a string is allowed"},
      {"gemma2", {{"attn_logit_softcapping", 0}}, "attn_logit_softcapping is 0; a number from 1e-06"},
      {"gemma2", {{"attn_logit_softcapping", -50.0}}, "attn_logit_softcapping is -50.0"},
      {"gemma2", {{"attn_logit_softcapping", "50"}}, "attn_logit_softcapping is \"50\""},
      {"gemma2", {{"final_logit_softcapping", 0.0}}, "final_logit_softcapping is 0.0"},
      {"gemma2", {{"final_logit_softcapping", -1}}, "final_logit_softcapping is -1"},
      {"gemma2", {{"final_logit_softcapping", true}}, "final_logit_softcapping is true"},
      {"gemma2", {{"final_logit_softcapping", infinite}}, "final_logit_softcapping is 1e+300"},
      {"gemma2", {{"query_pre_attn_scalar", 0}}, "query_pre_attn_scalar is 0"},
      {"gemma2", {{"query_pre_attn_scalar", -256}}, "query_pre_attn_scalar is -256"},
      {"gemma2", {{"query_pre_attn_scalar", nullptr}}, "query_pre_attn_scalar is null; a value is needed"},
      {"gemma2", {{"attention_bias", nullptr}}, "attention_bias is null"},
      {"gemma2", {{"use_bidirectional_attention", true}}, "use_bidirectional_attention is true; only causal attention"},
      {"gemma2", {{"use_bidirectional_attention", "no"}}, "use_bidirectional_attention is \"no\""},
      {"gemma2", {{"num_local_experts", 8}}, "num_local_experts is 8: gemma2 has no experts"},
      {"gemma2", {{"architectures", {"Gemma2ForSequenceClassification"}}}, "Gemma2ForCausalLM can be trained"},
      {"gemma2", {{"sliding_window", 0}}, "sliding_window is 0"},
      {"gemma2", {{"sliding_window", -4096}}, "sliding_window is -4096"},
      {"gemma2", {{"sliding_window", nullptr}}, "sliding_window is null, but all layers except one in 2 have a window"},
      {"gemma2", {{"layer_types", "sliding_attention"}}, "a list of 4 names, one a layer"},
      {"gemma2", {{"layer_types", {"full_attention", "sliding_attention", "full_attention"}}}, "a list of 4 names, one a layer"},
      {"gemma2",
       {{"layer_types", {"sliding_attention", "full_attention", "sliding_attention", 4}}},
       "layer_types has 4 for layer 3; full_attention and sliding_attention are supported"},
      {"gemma2",
       {{"layer_types", {"full_attention", "linear_attention", "full_attention", "full_attention"}}},
       "layer_types has \"linear_attention\" for layer 1"},
      {"gemma2",
       {{"sliding_window", nullptr},
        {"layer_types", {"full_attention", "full_attention", "sliding_attention", "full_attention"}}},
       "has sliding_attention for layer 2, but there is no sliding window"},
      {"gpt2", {{"n_head", 5}}, "n_head is 5; it must divide n_embd, 48"},
      {"gpt2", {{"n_inner", 0}}, "n_inner is 0"},
      {"gpt2", {{"add_cross_attention", true}}, "add_cross_attention is true"},
      {"gpt2", {{"layer_norm_epsilon", 10}}, "layer_norm_epsilon is 10"},
      {"llama",
       {{"hidden_size", 1 << 20}, {"intermediate_size", 1 << 24}, {"num_hidden_layers", 10000}},
       "parameters; at most 9007199254740992 are allowed"},
  };
  for (const Hostile& hostile : cases) {
    const Json json = with(small(hostile.model_type), hostile.changes);
    EXPECT_THAT(refusal(json), HasSubstr(hostile.message)) << json.dump();
  }
}

TEST(Config, RefusesTextThatIsNoConfiguration) {
  EXPECT_THAT(refusal(std::string()), HasSubstr("is empty"));
  EXPECT_THAT(refusal(std::string("{\"model_type\": \"llama\",\n  oops}")), HasSubstr("not valid JSON at line 2, column 3"));
  EXPECT_THAT(refusal(std::string("[1, 2]")), HasSubstr("is [1,2]; an object was expected"));
  EXPECT_THAT(refusal(std::string("{}")), HasSubstr("neither model_type nor architectures"));
  EXPECT_THAT(refusal(std::string(R"({"model_type": "llama", "vocab_size": 3, "vocab_size": 4})")),
              HasSubstr("the key \"vocab_size\" is there twice"));
  EXPECT_THAT(refusal(std::string(R"({"model_type": "llama", "vocab_size": 1e999})")),
              testing::AnyOf(HasSubstr("not valid JSON"), HasSubstr("64-bit")));
  EXPECT_THAT(refusal("{\"a\": " + std::string(100'000, '[') + "}"), HasSubstr("nested more than 64 deep"));
  EXPECT_THAT(refusal(std::string("{\"model_type\": \"\x1b[31m\xff\"}")), HasSubstr("not valid JSON"));
  // What a file says reaches the terminal escaped and short.
  EXPECT_THAT(refusal(Json{{"model_type", "\x1b[31m\n" + std::string(5000, 'x')}}),
              testing::AllOf(HasSubstr("\\u001b"), testing::SizeIs(testing::Lt(400))));
  std::string many = "{\"model_type\": \"llama\"";
  for (int i = 0; i < 20'000; ++i) many += ",\"k" + std::to_string(i) + "\": 1";
  EXPECT_THAT(refusal(many + "}"), HasSubstr("more than 10000 keys"));
}

// Thousands of damaged files, the same ones every time: each must be read or be refused in our own words, and what is read has
// sizes that make sense.
TEST(Config, SurvivesMutation) {
  const std::string seeds[] = {
      with(small("llama"),
           {{"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}}}})
          .dump(),
      with(small("qwen2"), {{"use_sliding_window", true},
                            {"sliding_window", 8},
                            {"layer_types", {"full_attention", "sliding_attention", "full_attention", "full_attention"}}})
          .dump(),
      small("gpt2").dump(),
      with(small("gemma2"), {{"sliding_window", 8},
                             {"layer_types", {"full_attention", "sliding_attention", "full_attention", "full_attention"}},
                             {"attn_logit_softcapping", 50.0},
                             {"final_logit_softcapping", 30.0},
                             {"query_pre_attn_scalar", 256}})
          .dump()};
  const std::string_view pieces[] = {
      "{",    "}",      "[",         "]", "\"", ",", ":", "-1", "0", "1e400", "null", "true", "18446744073709551615",
      "\xff", "1e-320", "2147483648"};
  std::mt19937_64 random(7);
  int read = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text = seeds[round % 4];
    for (int change = 1 + static_cast<int>(random() % 3); change > 0 && !text.empty(); --change) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text[at] = static_cast<char>('0' + random() % 10);
          break;
        case 2:
          text.erase(at, 1 + random() % 8);
          break;
        default:
          text.insert(at, pieces[random() % std::size(pieces)]);
          break;
      }
    }
    try {
      const ModelConfig config = parse_model_config(text, "config.json");
      ++read;
      ASSERT_GT(parameter_count(config), 0) << text;
      ASSERT_EQ(config.heads % config.kv_heads, 0) << text;
      ASSERT_EQ(static_cast<std::int64_t>(config.windows.size()), config.layers) << text;
      ASSERT_TRUE(config.attention_softcap >= 0 && config.logit_softcap >= 0 && config.attention_scale(0) > 0) << text;
      ASSERT_NO_THROW(static_cast<void>(parse_model_config(config_json(config, DType::bfloat16), "exported"))) << text;
    } catch (const InputError&) {
    }
  }
  EXPECT_GT(read, 100);
}

TEST(Config, MissingAndOversizedFiles) {
  EXPECT_THROW(static_cast<void>(read_model_config("/nonexistent/config.json")), InputError);
  EXPECT_THROW(static_cast<void>(read_model_config("/")), InputError);
  const std::string big = testing::TempDir() + "big_config.json";
  std::ofstream(big) << std::string(17 << 20, ' ');
  try {
    static_cast<void>(read_model_config(big));
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("at most 16777216 are read"));
  }
  std::remove(big.c_str());
}

}  // namespace
}  // namespace spillway
