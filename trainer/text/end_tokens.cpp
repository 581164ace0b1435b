#include "trainer/text/end_tokens.h"

#include <fmt/core.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>

#include "files/json_text.h"
#include "files/posix_file.h"
#include "memory/base/error.h"

namespace spillway {
namespace {

constexpr Bytes kLargestFile = 16 * kMiB;

constexpr std::array<std::string_view, 15> kTurnEnds = {
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>",    "<end_of_turn>",   "</s>",    "<|end|>", "<|return|>",           "<|call|>",
    "<turn|>",    "<|eot|>",    "<|endoftext|>", "<|end_of_text|>", "<|eos|>", "<eos>",   "<|END_OF_TURN_TOKEN|>"};

// A special token is text, or an object with "content".
std::string text_of(const nlohmann::json& token) {
  const bool has_content = token.is_object() && token.contains("content") && token["content"].is_string();
  const nlohmann::json& text = has_content ? token["content"] : token;
  return text.is_string() ? text.get<std::string>() : std::string();
}

}  // namespace

std::optional<std::int32_t> end_token_of(const Tokenizer& tokenizer) {
  const std::filesystem::path file = std::filesystem::path(tokenizer.path()).parent_path() / "tokenizer_config.json";
  std::error_code ignored;
  if (std::filesystem::is_regular_file(file, ignored)) {
    const nlohmann::json settings = parsed_json(read_text_file(file, kLargestFile));
    const std::string name = settings.is_object() && settings.contains("eos_token") ? text_of(settings["eos_token"]) : "";
    if (!name.empty()) {
      if (const auto id = tokenizer.token_id(name)) return id;
      throw InputError(
          fmt::format("{}: found the eos_token \"{}\", which {} does not have", file.string(), name, tokenizer.path()));
    }
  }
  return tokenizer.end_of_text();
}

std::vector<std::int32_t> turn_ends_of(const Tokenizer& tokenizer) {
  std::vector<std::int32_t> ends;
  if (const auto end = end_token_of(tokenizer)) ends.push_back(*end);
  for (const std::string_view name : kTurnEnds) {
    if (const auto id = tokenizer.added_token_id(name)) ends.push_back(*id);
  }
  return ends;
}

}  // namespace spillway
