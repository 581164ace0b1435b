#include "models/build.h"

#include <fmt/core.h>

#include <algorithm>

#include "memory/base/error.h"
#include "models/experts.h"
#include "models/gpt2.h"
#include "models/llama.h"
#include "models/mlp.h"

namespace spillway {
namespace {

constexpr std::int64_t kVocabularyTileRows = 8192;
constexpr std::int64_t kMlpTileElements = 64 << 20;
constexpr std::int64_t kGroupElements = 64 << 20;  // of a group of experts
constexpr std::int64_t kCutMultiple = 64;

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// The size of equal parts, rounded up so that every part but the last is a multiple of kCutMultiple.
std::int64_t even_part(std::int64_t whole, std::int64_t parts) { return round_up(divide_up(whole, parts), kCutMultiple); }

void check_shape(const ModelConfig& config, const BuildOptions& options) {
  if (options.micro_batch < 1 || options.sequence < 1) {
    throw InputError(fmt::format("a micro-batch of {} sequences of {} tokens has no rows", options.micro_batch, options.sequence),
                     "--micro-batch-size and --seq-length are 1 or more");
  }
  if (options.sequence > config.max_positions) {
    throw InputError(
        fmt::format("--seq-length {} is longer than the {} positions of the model", options.sequence, config.max_positions),
        fmt::format("use --seq-length {} or less", config.max_positions));
  }
  if (options.context > config.max_positions) {
    throw InputError(fmt::format("a context of {} tokens is longer than the {} positions of the model", options.context,
                                 config.max_positions));
  }
  SPILLWAY_CHECK(options.context == 0 || (options.micro_batch == 1 && options.sequence <= options.context),
                 "{} sequences of {} tokens in a context of {}", options.micro_batch, options.sequence, options.context);
}

}  // namespace

Cuts canonical_cuts(const ModelConfig& config) {
  Cuts cuts;
  cuts.vocabulary_rows = even_part(config.vocab, divide_up(config.vocab, kVocabularyTileRows));
  cuts.mlp_columns = even_part(config.mlp_width, divide_up(mlp_matrix_elements(config), kMlpTileElements));
  if (config.experts > 0) {
    const std::int64_t most = std::max<std::int64_t>(1, kGroupElements / expert_elements(config));
    cuts.experts_a_group = divide_up(config.experts, divide_up(config.experts, most));
  }
  return cuts;
}

CompiledModel build_model(const ModelConfig& config, const BuildOptions& options) {
  return build_model_with_cuts(config, options, canonical_cuts(config));
}

CompiledModel build_model_with_cuts(const ModelConfig& config, const BuildOptions& options, const Cuts& cuts) {
  check_shape(config, options);
  SPILLWAY_CHECK(cuts.vocabulary_rows > 0 && cuts.mlp_columns > 0 && cuts.head_strip > 0 && cuts.experts_a_group > 0,
                 "cuts of {}, {}, {} and {}", cuts.vocabulary_rows, cuts.mlp_columns, cuts.head_strip, cuts.experts_a_group);
  ModelBuilder builder(options, cuts);
  switch (config.family->units) {
    case UnitsOf::gpt2: add_gpt2_units(builder, config, options.head); break;
    case UnitsOf::llama: add_llama_units(builder, config, options.head); break;
  }
  return builder.finish();
}

}  // namespace spillway
