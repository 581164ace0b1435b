#include "models/catalogue/catalogue.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "files/json_text.h"
#include "memory/base/edit_distance.h"
#include "memory/base/error.h"
#include "models/weights_io.h"

namespace spillway {
namespace {

constexpr std::size_t kNearest = 3;

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

std::string nearest_names(std::string_view name) {
  const std::string wanted = lower(name.substr(0, 64));
  std::vector<std::pair<std::size_t, std::string_view>> ranked;
  for (const CatalogueEntry& entry : catalogue()) ranked.emplace_back(edit_distance(wanted, entry.name), entry.name);
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  ranked.resize(std::min(ranked.size(), kNearest));
  std::vector<std::string_view> names;
  for (const auto& [distance, near] : ranked) names.push_back(near);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string all_names() {
  std::vector<std::string_view> names;
  for (const CatalogueEntry& entry : catalogue()) names.push_back(entry.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

const CatalogueEntry* find(std::string_view name) {
  const std::string wanted = lower(name);
  const auto at = std::ranges::find(catalogue(), wanted, &CatalogueEntry::name);
  return at == catalogue().end() ? nullptr : &*at;
}

// Weights as other programs write them, and the indexes of shards of which perhaps none was fetched.
bool names_other_weights(std::string_view name) {
  constexpr std::string_view kEndings[] = {".safetensors", ".gguf", ".pth", ".pt", ".h5", ".msgpack", ".ckpt", ".onnx"};
  constexpr std::string_view kBeginnings[] = {"pytorch_model", "consolidated", "tf_model", "flax_model"};
  return std::ranges::any_of(kEndings, [&](std::string_view ending) { return lower(name).ends_with(ending); }) ||
         std::ranges::any_of(kBeginnings, [&](std::string_view beginning) { return name.starts_with(beginning); }) ||
         (name.find(".ckpt.") != name.npos || name.ends_with(".index.json"));
}

// Weights that are there but cannot be read must not be replaced by random ones in silence.
std::filesystem::path weights_of(const std::filesystem::path& directory, Weights weights) {
  if (weights == Weights::drawn) return {};
  std::vector<std::string> unread;
  bool safetensors = false;
  std::error_code error;
  std::filesystem::directory_iterator entries(directory, error);
  if (error)
    throw IoError(fmt::format("{}: cannot be listed: {}", directory.string(), error.message()),
                  "Check the permissions of the directory.");
  for (const auto& entry : entries) {
    const std::string name = entry.path().filename().string();
    if (name == "model.safetensors" || name == "model.safetensors.index.json") safetensors = true;
    if (names_other_weights(name)) unread.push_back(name);
  }
  if (safetensors) return directory;
  if (!unread.empty()) {
    std::sort(unread.begin(), unread.end());
    throw InputError(fmt::format("{}: has {} but neither model.safetensors nor model.safetensors.index.json", directory.string(),
                                 unread.front()),
                     "Convert the weights to safetensors, or fetch those; --init random trains from random weights.");
  }
  if (weights == Weights::of_directory) {
    throw InputError(fmt::format("{}: has a config.json and no weights", directory.string()),
                     "Fetch its model.safetensors, or draw weights from --seed with --init random.");
  }
  return {};
}

// As transformers does from version 5 on, where the file contradicts the configuration.
void heed_head(ResolvedModel& model) {
  try {
    ModelConfig& config = model.config;
    const HeadInFile head = head_in(SafetensorsReader(model.directory), config);
    if (head == HeadInFile::missing) {
      config.notes.push_back(
          fmt::format("{} has the bare model, without a head: lm_head.weight is drawn from --seed", model.directory));
    }
    if (head != HeadInFile::differs) return;
    const char* key = config.family->tied.key;
    config.tied_embeddings = false;
    auto json = nlohmann::ordered_json::parse(config.json_text);
    json[key] = false;
    config.json_text = json.dump(2);
    config.notes.push_back(
        fmt::format("{} is true in {}/config.json, but lm_head.weight differs from the embedding: both are "
                    "read, and trained apart",
                    key, model.directory));
  } catch (const Error&) {
    // The reader of its weights says what is wrong with the file.
  }
}

}  // namespace

std::span<const CatalogueEntry> catalogue() {
  static const std::vector<CatalogueEntry> entries = [] {
    std::vector<CatalogueEntry> all;
    for (const EmbeddedFile& family : catalogue_files()) {
      const auto models = nlohmann::ordered_json::parse(family.text);
      for (const auto& [name, config] : models.items()) all.push_back({name, json_text(config, 2)});
    }
    return all;
  }();
  return entries;
}

ModelConfig catalogue_config(std::string_view name) {
  const CatalogueEntry* entry = find(name);
  if (entry == nullptr) {
    throw InputError(fmt::format("the catalogue has no model {}; nearest are {}", name, nearest_names(name)),
                     fmt::format("It has {}.", all_names()));
  }
  return parse_model_config(entry->config_json, fmt::format("catalogue entry {}", entry->name));
}

bool names_catalogue_model(const std::string& path_or_name) {
  std::error_code ignored;
  return !std::filesystem::exists(path_or_name, ignored) && find(path_or_name) != nullptr;
}

ResolvedModel resolve_model(const std::string& path_or_name, Weights weights) {
  namespace fs = std::filesystem;
  const fs::path path = path_or_name;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    if (!fs::exists(path / "config.json", ignored)) {
      throw InputError(fmt::format("{}: has no config.json, so it is not a Hugging Face directory", path_or_name));
    }
    ResolvedModel model{read_model_config(path / "config.json"), weights_of(path, weights)};
    if (!model.directory.empty()) heed_head(model);
    return model;
  }
  if (fs::exists(path, ignored)) {
    if (path.extension() != ".json") {
      throw InputError(fmt::format("{}: is a file but not a config.json", path_or_name),
                       "Name a Hugging Face directory, a config.json, or a model of the catalogue.");
    }
    return {read_model_config(path), {}};
  }
  if (names_catalogue_model(path_or_name)) return {catalogue_config(path_or_name), {}};
  if (path.extension() == ".json" || path_or_name.find('/') != std::string::npos) {
    throw InputError(fmt::format("{}: there is no such file or directory", path_or_name),
                     fmt::format("Names of the catalogue near it: {}.", nearest_names(path.filename().string())));
  }
  throw InputError(fmt::format("model {}: neither a directory nor a config.json nor in the catalogue; nearest are {}",
                               path_or_name, nearest_names(path_or_name)),
                   fmt::format("The catalogue has {}.", all_names()));
}

}  // namespace spillway
