#include "trainer/run/stop_tokens.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "files/json_text.h"
#include "files/posix_file.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

constexpr Bytes kLargestSettings = kMiB;

// The ids under "eos_token_id", which is a number or a list of numbers.
std::set<std::int32_t> end_tokens_in(const nlohmann::json& settings) {
  std::set<std::int32_t> tokens;
  if (!settings.is_object() || !settings.contains("eos_token_id")) return tokens;
  const nlohmann::json& found = settings["eos_token_id"];
  for (const nlohmann::json& id : found.is_array() ? found : nlohmann::json::array({found})) {
    if (id.is_number_integer() && id.get<std::int64_t>() >= 0 && id.get<std::int64_t>() <= INT32_MAX)
      tokens.insert(id.get<std::int32_t>());
  }
  return tokens;
}

nlohmann::json settings_of(const fs::path& file) {
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return {};
  return parsed_json(read_text_file(file, kLargestSettings));
}

const std::string& place_of_settings(const ModelOptions& model) {
  return model.kept_config.empty() ? model.model : model.kept_config;
}

}  // namespace

std::set<std::int32_t> stop_tokens(const ModelOptions& options, const ModelConfig& config, const TextCodec& codec) {
  const std::string& model = place_of_settings(options);
  std::error_code ignored;
  const fs::path directory = fs::is_directory(model, ignored) ? fs::path(model) : fs::path(model).parent_path();
  std::set<std::int32_t> tokens = end_tokens_in(settings_of(directory / "generation_config.json"));
  const nlohmann::json whole = parsed_json(config.json_text);
  if (tokens.empty()) tokens = end_tokens_in(whole);
  if (tokens.empty() && config.is_text_half()) tokens = end_tokens_in(whole.at("text_config"));
  if (tokens.empty() && codec.end_of_text()) tokens.insert(*codec.end_of_text());
  return tokens;
}

}  // namespace spillway
