// Damaged and hostile config.json files: each is refused by name, or read as what it says.
#include <cmath>
#include <fstream>
#include <random>
#include <utility>
#include <vector>

#include "tests/models/config_testing.h"

namespace spillway {
namespace {

using testing::HasSubstr;

struct Hostile {
  const char* model_type;
  Json changes;
  const char* message;
};

constexpr double kInfinite = 1e300;
const Hostile kHostile[] = {
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
    {"llama", {{"head_dim", 1026}}, "head_dim is 1026; rotary positions need an even number of at most 1024"},
    {"qwen3", {{"head_dim", 65536}}, "head_dim is 65536; rotary positions need an even number of at most 1024"},
    {"llama",
     {{"hidden_size", 4096}, {"num_attention_heads", 2}, {"num_key_value_heads", 1}},
     "head_dim is 2048; rotary positions need"},
    {"llama", {{"num_attention_heads", 65536}, {"num_key_value_heads", 1}, {"head_dim", 1024}}, "it may be at most 4194304"},
    {"llama", {{"rms_norm_eps", 0}}, "rms_norm_eps is 0"},
    {"llama", {{"rms_norm_eps", -1e-5}}, "rms_norm_eps is -1e-05"},
    {"llama", {{"rope_theta", kInfinite}}, "rope_theta is 1e+300"},
    {"llama", {{"rope_theta", 0}}, "rope_theta is 0"},
    {"llama", {{"initializer_range", 2}}, "initializer_range is 2"},
    {"llama", {{"hidden_act", "relu"}}, "hidden_act is \"relu\"; silu, gelu"},
    {"llama", {{"tie_word_embeddings", 1}}, "tie_word_embeddings is 1; true or false"},
    {"llama", {{"attention_bias", "yes"}}, "attention_bias is \"yes\""},
    {"llama", {{"dtype", "float8"}}, "dtype is \"float8\"; float32, bfloat16 and float16"},
    {"llama", {{"dtype", "float32"}, {"torch_dtype", "bfloat16"}}, "they mean the same thing"},
    {"llama", {{"rope_scaling", 3}}, "rope_scaling is 3; an object is allowed"},
    {"llama",
     {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}},
     "rope_scaling.type is \"dynamic\"; default, linear, llama3, yarn and longrope"},
    {"llama", {{"rope_scaling", {{"rope_type", "yarn"}}}}, "rope_scaling.factor is missing; yarn scaling needs it"},
    {"llama", {{"rope_theta", 1}, {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}}}}, "rope_theta is 1; yarn"},
    {"llama", {{"rope_parameters", {{"rope_type", "longrope"}}}}, "rope_parameters.short_factor is missing; longrope"},
    {"llama",
     {{"rope_parameters", {{"rope_type", "longrope"}, {"short_factor", {1, 2}}}}},
     "short_factor has 2 numbers; 8 are allowed"},
    {"llama",
     {{"rope_parameters", {{"rope_type", "longrope"}, {"short_factor", {1, 1, 1, 0, 1, 1, 1, 1}}}}},
     "short_factor[3] is 0"},
    {"llama",
     {{"rope_parameters", {{"rope_type", "default"}, {"llama_4_scaling_beta", 0.1}}}},
     "llama_4_scaling_beta is 0.1; a llama model does not scale its queries"},
    {"ministral3", Json::object(), "rope_parameters is missing; ministral3 needs it"},
    {"phi3", {{"partial_rotary_factor", 0.45}}, "partial_rotary_factor is 0.45; of a head's 16 elements an even number"},
    {"phi3", {{"partial_rotary_factor", 0}}, "partial_rotary_factor is 0"},
    {"glm4", {{"partial_rotary_factor", 0.01}}, "partial_rotary_factor is 0.01; of a head's 128 elements an even number"},
    {"glm4", {{"rope_parameters", {{"partial_rotary_factor", 1.5}}}}, "rope_parameters.partial_rotary_factor is 1.5"},
    {"glm4", {{"num_key_value_heads", nullptr}}, "num_key_value_heads is null; a value is needed"},
    {"glm4", {{"attention_bias", 1}}, "attention_bias is 1; true or false"},
    {"ernie4_5", {{"partial_rotary_factor", 0.5}}, "partial_rotary_factor is 0.5; only 1"},
    {"ernie4_5", {{"use_bias", "no"}}, "use_bias is \"no\""},
    {"ernie4_5", {{"num_experts", 64}}, "num_experts is 64: ernie4_5 has no experts"},
    {"ernie4_5_moe", Json::object(), "model_type is \"ernie4_5_moe\": unknown architecture"},
    {"olmo2", {{"partial_rotary_factor", 0.5}}, "partial_rotary_factor is 0.5; only 1"},
    {"olmo2",
     {{"rope_parameters", {{"sliding_attention", {{"rope_theta", 1e4}}}}}},
     "rope_parameters has a RoPE for each layer type; a Olmo2 model has one for all layers"},
    {"olmo3", {{"sliding_window", nullptr}}, "sliding_window is null, but all layers except one in 4 have a window"},
    {"olmo3", {{"layer_types", {"full_attention"}}}, "a list of 4 names, one a layer"},
    {"olmo3", {{"rope_scaling", {{"rope_type", "yarn"}}}}, "rope_scaling.factor is missing; yarn scaling needs it"},
    {"olmo3", {{"rope_theta", "big"}}, "rope_theta is \"big\""},
    {"olmo3",
     {{"rope_parameters", {{"rope_type", "yarn"}, {"factor", 8}}}},
     "rope_parameters has one RoPE; a Olmo3 model has one for each layer type: full_attention and sliding_attention"},
    {"smollm3", {{"no_rope_layers", {1, 0}}}, "a list of 4 numbers, one a layer"},
    {"smollm3", {{"no_rope_layers", {1, 0, 2, 0}}}, "no_rope_layers[2] is 2"},
    {"granite", {{"residual_multiplier", 0.22}, {"mlp_bias", true}}, "residual_multiplier is 0.22, and there are biases"},
    {"granite", {{"logits_scaling", 0}}, "logits_scaling is 0"},
    {"qwen3_next", Json::object(), "model_type is \"qwen3_next\": its gated delta layers are not computed"},
    {"qwen3_5", {{"text_config", Json::object()}}, "its gated delta layers are not computed"},
    {"gemma3", Json::object(), "text_config is missing: this gemma3 has no language model"},
    {"gemma3", {{"text_config", 3}}, "text_config is 3"},
    {"gemma3",
     {{"text_config", {{"model_type", "bert"}}}},
     "text_config.model_type is \"bert\": the text half of gemma3 is known"},
    {"gemma3", {{"text_config", {{"hidden_size", -1}}}}, "text_config.hidden_size is -1"},
    {"gemma3",
     {{"architectures", {"Gemma3ForSequenceClassification"}}, {"text_config", Json::object()}},
     "the text half of Gemma3ForConditionalGeneration can be trained"},
    {"mistral3",
     {{"text_config", Json::object()}, {"quantization_config", Json::object()}},
     "quantized weights cannot be trained"},
    {"llava",
     {{"text_config", Json::object()}},
     "unknown checkpoint around a language model; known are gemma3, mistral3, qwen3_vl"},
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
    {"llama", {{"architectures", "LlamaForCausalLM"}}, "an array is allowed"},
    {"mixtral", {{"num_local_experts", 0}}, "num_local_experts is 0; a whole number from 1"},
    {"mixtral", {{"num_local_experts", 4}, {"num_experts_per_tok", 5}}, "num_experts_per_tok is 5; a whole number from 1 to 4"},
    {"mixtral",
     {{"num_local_experts", 1024}, {"intermediate_size", 1 << 15}},
     "times the width of an expert, 32768, it may be at most 16777216"},
    {"mixtral", {{"decoder_sparse_step", 2}}, "decoder_sparse_step leaves layers without experts"},
    {"qwen3_moe", {{"decoder_sparse_step", 99}}, "decoder_sparse_step leaves no layer with experts"},
    {"qwen3_moe", {{"mlp_only_layers", {"a"}}}, "mlp_only_layers[0] is"},
    {"qwen3_moe", {{"n_group", 8}}, "n_group is 8; this changes how a mixture is computed, and only 1 is supported"},
    {"qwen3_moe", {{"scoring_func", "sigmoid"}}, "scoring_func is \"sigmoid\""},
    {"olmoe", {{"clip_qkv", 8.0}}, "clip_qkv is 8.0"},
    {"gpt_oss", {{"rope_parameters", nullptr}}, "rope_parameters is missing; gpt_oss needs it"},
    {"gpt_oss", {{"swiglu_limit", 5.0}}, "swiglu_limit is 5.0; only 7 is supported"},
    {"gpt_oss", {{"quantization_config", {{"quant_method", "mxfp4"}}}}, "says mxfp4: quantized weights cannot be trained"},
    {"mixtral", {{"router_jitter_noise", 0.1}}, "router_jitter_noise is 0.1"},
    {"olmoe", {{"router_aux_loss_coef", -1}}, "router_aux_loss_coef is -1"},
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
    {"gemma2", {{"hidden_activation", 3}}, "hidden_activation is 3; a string is allowed"},
    {"gemma2", {{"attn_logit_softcapping", 0}}, "attn_logit_softcapping is 0; a number from 1e-06"},
    {"gemma2", {{"attn_logit_softcapping", -50.0}}, "attn_logit_softcapping is -50.0"},
    {"gemma2", {{"attn_logit_softcapping", "50"}}, "attn_logit_softcapping is \"50\""},
    {"gemma2", {{"final_logit_softcapping", 0.0}}, "final_logit_softcapping is 0.0"},
    {"gemma2", {{"final_logit_softcapping", -1}}, "final_logit_softcapping is -1"},
    {"gemma2", {{"final_logit_softcapping", true}}, "final_logit_softcapping is true"},
    {"gemma2", {{"final_logit_softcapping", kInfinite}}, "final_logit_softcapping is 1e+300"},
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
    {"gemma2", {{"layer_types", "sliding_attention"}}, "layer_types is \"sliding_attention\"; an array is allowed"},
    {"gemma2", {{"layer_types", {"full_attention", "sliding_attention", "full_attention"}}}, "a list of 4 names, one a layer"},
    {"gemma2",
     {{"layer_types", {"sliding_attention", "full_attention", "sliding_attention", 4}}},
     "layer_types has 4 for layer 3; full_attention and sliding_attention are supported"},
    {"gemma2",
     {{"layer_types", {"full_attention", "linear_attention", "full_attention", "full_attention"}}},
     "layer_types has \"linear_attention\" for layer 1"},
    {"gemma2",
     {{"sliding_window", nullptr}, {"layer_types", {"full_attention", "full_attention", "sliding_attention", "full_attention"}}},
     "has sliding_attention for layer 2, but there is no sliding window"},
    {"gemma3_text", {{"sliding_window_pattern", 0}}, "sliding_window_pattern is 0"},
    {"gemma3_text", {{"sliding_window_pattern", "6"}}, "sliding_window_pattern is \"6\""},
    {"gemma3_text", {{"sliding_window", nullptr}}, "sliding_window is null, but all layers except one in 6 have a window"},
    {"gemma3_text", {{"rope_local_base_freq", 0}}, "rope_local_base_freq is 0"},
    {"gemma3_text", {{"rope_local_base_freq", nullptr}}, "rope_local_base_freq is null; a value is needed"},
    {"gemma3_text", {{"rope_parameters", {{"full_attention", 3}}}}, "rope_parameters.full_attention is 3; an object is allowed"},
    {"gemma3_text",
     {{"rope_parameters", {{"sliding_attention", {{"rope_type", "dynamic"}, {"factor", 2.0}}}}}},
     "rope_parameters.sliding_attention.rope_type is \"dynamic\""},
    {"gemma3_text", {{"attn_logit_softcapping", -1}}, "attn_logit_softcapping is -1"},
    {"gemma3_text", {{"use_bidirectional_attention", true}}, "use_bidirectional_attention is true; only causal attention"},
    {"llama",
     {{"rope_parameters", {{"full_attention", {{"rope_theta", 1e4}}}}}},
     "rope_parameters has a RoPE for each layer type; a Llama model has one for all layers"},
    {"gpt2", {{"n_head", 5}}, "n_head is 5; it must divide n_embd, 48"},
    {"gpt2", {{"n_inner", 0}}, "n_inner is 0"},
    {"gpt2", {{"add_cross_attention", true}}, "add_cross_attention is true"},
    {"gpt2", {{"layer_norm_epsilon", 10}}, "layer_norm_epsilon is 10"},
};

TEST(ConfigRefusals, RefusesWhatMakesNoSense) {
  for (const Hostile& hostile : kHostile) {
    const Json json = with(small(hostile.model_type), hostile.changes);
    EXPECT_THAT(refusal(json), HasSubstr(hostile.message)) << json.dump();
  }
}

TEST(ConfigRefusals, RefusesTextThatIsNoConfiguration) {
  EXPECT_THAT(refusal(std::string()), HasSubstr("is empty"));
  EXPECT_THAT(refusal(std::string("{\"model_type\": \"llama\",\n  oops}")), HasSubstr("not valid JSON at line 2, column 3"));
  EXPECT_THAT(refusal(std::string("[1, 2]")), HasSubstr("is [1,2]; an object is allowed"));
  EXPECT_THAT(refusal(std::string("{}")), HasSubstr("model_type is missing, and so is architectures"));
  EXPECT_THAT(refusal(std::string(R"({"model_type": "llama", "vocab_size": 3, "vocab_size": 4})")),
              HasSubstr("the key \"vocab_size\" is there twice"));
  EXPECT_THAT(refusal(std::string(R"({"model_type": "llama", "vocab_size": 1e999})")),
              testing::AnyOf(HasSubstr("not valid JSON"), HasSubstr("64-bit")));
  EXPECT_THAT(refusal("{\"a\": " + std::string(100'000, '[') + "}"), HasSubstr("nested more than 64 deep"));
  EXPECT_THAT(refusal(std::string("{\"model_type\": \"\x1b[31m\xff\"}")), HasSubstr("not valid JSON"));
  // A file's text reaches the terminal escaped and short.
  EXPECT_THAT(refusal(Json{{"model_type", "\x1b[31m\n" + std::string(5000, 'x')}}),
              testing::AllOf(HasSubstr("\\u001b"), testing::SizeIs(testing::Lt(400))));
  std::string many = "{\"model_type\": \"llama\"";
  for (int i = 0; i < 20'000; ++i) many += ",\"k" + std::to_string(i) + "\": 1";
  EXPECT_THAT(refusal(many + "}"), HasSubstr("more than 10000 keys"));
}

// Thousands of damaged files, the same ones every time. Each must be read or refused in our own words, and what is read must have
// sizes that make sense.
TEST(ConfigRefusals, SurvivesMutation) {
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
        case 0: text[at] = static_cast<char>(random()); break;
        case 1: text[at] = static_cast<char>('0' + random() % 10); break;
        case 2: text.erase(at, 1 + random() % 8); break;
        default: text.insert(at, pieces[random() % std::size(pieces)]); break;
      }
    }
    try {
      const ModelConfig config = parse_model_config(text, "config.json");
      ++read;
      ASSERT_EQ(config.heads % config.kv_heads, 0) << text;
      ASSERT_EQ(static_cast<std::int64_t>(config.windows.size()), config.layers) << text;
      ASSERT_TRUE(config.attention_softcap >= 0 && config.logit_softcap >= 0 && config.attention_scale(0) > 0) << text;
      ASSERT_NO_THROW(static_cast<void>(parse_model_config(config_json(config, DType::bfloat16), "exported"))) << text;
    } catch (const InputError&) {
    }
  }
  EXPECT_GT(read, 100);
}

TEST(ConfigRefusals, MissingAndOversizedFiles) {
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
