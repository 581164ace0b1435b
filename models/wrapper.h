// Checkpoints that wrap a language model: their config.json has its configuration as text_config, and their files have tensors
// beside its own, for one of a vision tower. Only the text half is trained; the other tensors are never read.
// Not here: reading text_config (config.h), what an export does with the other tensors (weights_io.h).
//
// The text half's tensors are named as Hugging Face's modules are: behind kTextPrefix, and the head as that of other models.
// Files name them in one of three ways, which text_name_forms has.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

struct TextHalf {
  std::string_view model_type;  // in text_config
  std::string_view family;      // the family's model_type (family.h)
};

struct WrapperRow {
  std::string_view model_type, architecture;
  bool tied = true;  // tie_word_embeddings where the file does not say it
  std::span<const TextHalf> text;
};

std::span<const WrapperRow> wrappers();

inline constexpr std::string_view kTextPrefix = "model.language_model.";

// Other names that a tensor of a text half, or of its adapter, has in files; none for a tensor of another name.
std::vector<std::string> text_name_forms(std::string_view tensor);
// A layer's name without what stands before "layers." in a text half: "layers.0.mlp.up_proj".
std::string_view without_text_prefix(std::string_view layer);

}  // namespace spillway
