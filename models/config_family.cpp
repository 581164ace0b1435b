#include "models/config_family.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "files/strict_json.h"

namespace spillway {
namespace {

std::string known_families() {
  return fmt::format("{}", fmt::join(family_names([](const FamilyRow&) { return true; }), ", "));
}

bool same_letters(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

// Families whose layers are partly no attention.
constexpr std::array<std::string_view, 5> kGatedDelta = {"qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe",
                                                         "qwen3_5_moe_text"};

void refuse_gated_delta(const ConfigSection& section, const std::string& model_type) {
  if (std::ranges::find(kGatedDelta, model_type) != kGatedDelta.end())
    section.refuse("model_type", fmt::format("is {}: its gated delta layers are not computed", shown_name(model_type)));
}

std::string first_architecture(const ConfigSection& section) {
  if (!section.has("architectures")) return {};
  const JsonPlace list = section["architectures"];
  return list.size() > 0 ? list.at(0).text() : std::string();
}

std::string model_type_in(const ConfigSection& section) {
  return section.text({.name = "model_type", .null = NullIs::absent}, "");
}

std::string known_wrappers() {
  std::vector<std::string_view> names;
  for (const WrapperRow& row : wrappers()) names.push_back(row.model_type);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

const FamilyRow* read_family(const ConfigSection& section) {
  const std::string architecture = first_architecture(section), model_type = model_type_in(section);
  refuse_gated_delta(section, model_type);
  if (model_type.empty() && architecture.empty()) {
    section.refuse("model_type", "is missing, and so is architectures: this describes no model",
                   fmt::format("Known are {}.", known_families()));
  }
  const std::string& named = model_type.empty() ? architecture : model_type;
  for (const FamilyRow& row : families()) {
    if (model_type.empty() ? !same_letters(architecture, row.architecture) : model_type != row.model_type) continue;
    // The bare model (GPT2Model) has the same weights; a classifier has others.
    if (!architecture.empty() && !same_letters(architecture, row.architecture) &&
        !same_letters(architecture, std::string(bare_name(row)) + "Model")) {
      section.refuse("architectures", fmt::format("names {}; of {}, {} can be trained", shown_name(architecture), row.model_type,
                                                  row.architecture));
    }
    return &row;
  }
  const char* key = model_type.empty() ? "architectures" : "model_type";
  section.refuse(key, fmt::format("is {}: unknown architecture; known are {}", shown_name(named), known_families()));
}

const WrapperRow* read_wrapper(const ConfigSection& whole) {
  const std::string architecture = first_architecture(whole), model_type = model_type_in(whole);
  for (const WrapperRow& row : wrappers()) {
    if (model_type.empty() ? !same_letters(architecture, row.architecture) : model_type != row.model_type) continue;
    const std::string_view name = row.architecture.substr(0, row.architecture.find("ForConditional"));
    if (!architecture.empty() && !same_letters(architecture, row.architecture) &&
        !same_letters(architecture, std::string(name) + "Model")) {
      whole.refuse("architectures", fmt::format("names {}; of {}, the text half of {} can be trained", shown_name(architecture),
                                                row.model_type, row.architecture));
    }
    if (!whole.has("text_config")) {
      whole.refuse("text_config", fmt::format("is missing: this {} has no language model to train", row.model_type),
                   "A text half has its own configuration under text_config.");
    }
    return &row;
  }
  if (!whole.has("text_config")) return nullptr;
  refuse_gated_delta(whole, model_type);
  whole.refuse(model_type.empty() ? "architectures" : "model_type",
               fmt::format("is {}: unknown checkpoint around a language model; known are {}",
                           shown_name(model_type.empty() ? architecture : model_type), known_wrappers()));
}

const FamilyRow* read_text_family(const ConfigSection& text, const WrapperRow& wrapper) {
  const std::string model_type = model_type_in(text);
  refuse_gated_delta(text, model_type);
  std::vector<std::string_view> names;
  for (const TextHalf& half : wrapper.text) {
    if (model_type.empty() || model_type == half.model_type) return find_family(half.family);
    names.push_back(half.model_type);
  }
  text.refuse("model_type", fmt::format("is {}: the text half of {} is known as {}", shown_name(model_type), wrapper.model_type,
                                        fmt::join(names, ", ")));
}

}  // namespace spillway
