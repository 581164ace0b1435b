#include "models/wrapper.h"

#include <array>

namespace spillway {
namespace {

constexpr TextHalf kGemma3[] = {{"gemma3_text", "gemma3_text"}};
constexpr TextHalf kMistral3[] = {{"mistral", "mistral"}, {"ministral3", "ministral3"}};
constexpr TextHalf kQwen3Vl[] = {{"qwen3_vl_text", "qwen3"}};

constexpr WrapperRow kWrappers[] = {
    {.model_type = "gemma3", .architecture = "Gemma3ForConditionalGeneration", .text = kGemma3},
    {.model_type = "mistral3", .architecture = "Mistral3ForConditionalGeneration", .text = kMistral3},
    {.model_type = "qwen3_vl", .architecture = "Qwen3VLForConditionalGeneration", .tied = false, .text = kQwen3Vl},
};

constexpr std::string_view kAdapterOf = "base_model.model.", kHead = "lm_head.";
// Ours first: the others may begin as it does.
constexpr std::array<std::string_view, 3> kPrefixes = {kTextPrefix, "language_model.model.", "model."};

}  // namespace

std::span<const WrapperRow> wrappers() { return kWrappers; }

std::vector<std::string> text_name_forms(std::string_view tensor) {
  if (tensor.starts_with(kHead)) return {"language_model." + std::string(tensor)};
  std::string of_adapter;
  if (tensor.starts_with(kAdapterOf)) {
    of_adapter = kAdapterOf;
    tensor.remove_prefix(kAdapterOf.size());
  }
  if (!tensor.starts_with(kTextPrefix)) return {};
  const std::string_view rest = tensor.substr(kTextPrefix.size());
  std::vector<std::string> forms;
  for (const std::string_view prefix : kPrefixes) {
    if (prefix != kTextPrefix) forms.push_back(of_adapter + std::string(prefix) + std::string(rest));
  }
  return forms;
}

std::string_view without_text_prefix(std::string_view layer) {
  for (const std::string_view prefix : kPrefixes) {
    if (layer.starts_with(prefix)) return layer.substr(prefix.size());
  }
  return layer;
}

}  // namespace spillway
