#include "trainer/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "memory/error.h"
#include "models/posix_file.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

constexpr Bytes kLargestFile = 16 * kMiB;

// One template, or a list of them of which "default" is meant.
const TemplateValue* template_in(const TemplateValue& config) {
  const auto found = config.find("chat_template");
  if (found == config.end()) return nullptr;
  if (found->is_string()) return &*found;
  if (!found->is_array()) return nullptr;
  for (const TemplateValue& entry : *found) {
    if (entry.is_object() && entry.value("name", TemplateValue()) == "default" && entry.contains("template") &&
        entry["template"].is_string())
      return &entry["template"];
  }
  return nullptr;
}

TemplateValue config_of(const fs::path& file) {
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return TemplateValue::object();
  TemplateValue config = TemplateValue::parse(read_text_file(file.string(), kLargestFile), nullptr, false);
  if (!config.is_object()) throw InputError(fmt::format("{}: found no JSON object", file.string()));
  return config;
}

// "bos_token" and its kind: text, or an object with "content".
TemplateValue special_tokens_in(const TemplateValue& config) {
  TemplateValue tokens = TemplateValue::object();
  for (const auto& [name, value] : config.items()) {
    if (!name.ends_with("_token")) continue;
    if (value.is_string()) tokens[name] = value;
    if (value.is_object() && value.contains("content") && value["content"].is_string()) tokens[name] = value["content"];
  }
  return tokens;
}

}  // namespace

ChatTemplate::ChatTemplate(Template text, TemplateValue variables)
    : template_(std::move(text)), variables_(std::move(variables)) {}

ChatTemplate ChatTemplate::load(const fs::path& tokenizer) {
  std::error_code ignored;
  const fs::path directory = fs::is_directory(tokenizer, ignored) ? tokenizer : tokenizer.parent_path();
  const fs::path file = directory / "chat_template.jinja", settings = directory / "tokenizer_config.json";
  const TemplateValue config = config_of(settings);
  const TemplateValue variables = special_tokens_in(config);
  if (fs::is_regular_file(file, ignored))
    return {Template(read_text_file(file.string(), kLargestFile), file.string()), variables};
  if (const TemplateValue* const text = template_in(config))
    return {Template(text->get_ref<const std::string&>(), settings.string() + ": chat_template"), variables};
  throw InputError(
      fmt::format("{}: found no chat template for \"messages\", allowed: a chat_template.jinja, or \"chat_template\" in "
                  "tokenizer_config.json",
                  (directory.empty() ? fs::path(".") : directory).string()),
      "it says how a conversation becomes the text that the model reads; or write rows of \"text\" or \"input_ids\"");
}

std::string ChatTemplate::render(std::string_view row) const {
  TemplateValue parsed = TemplateValue::parse(row, nullptr, false);
  if (!parsed.is_object() || !parsed.contains("messages")) throw InputError("found no \"messages\"");
  TemplateValue& messages = parsed["messages"];
  if (!messages.is_array())
    throw InputError(
        fmt::format("\"messages\" is {}, allowed: an array of objects with \"role\" and \"content\"", messages.type_name()));
  if (messages.empty()) throw InputError("found no message in \"messages\", allowed: at least one");
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const TemplateValue& message = messages[i];
    if (!message.is_object())
      throw InputError(fmt::format("message {} is {}, allowed: an object with \"role\" and \"content\"", i, message.type_name()));
    if (!message.contains("role") || !message["role"].is_string())
      throw InputError(fmt::format("message {} has no \"role\", allowed: a string", i));
    if (!message.contains("content") && !message.contains("tool_calls"))
      throw InputError(fmt::format("message {} has no \"content\"", i));
  }
  TemplateValue variables = variables_;
  variables["messages"] = std::move(messages);
  variables["tools"] = parsed.contains("tools") ? std::move(parsed["tools"]) : TemplateValue(nullptr);
  variables["documents"] = nullptr;
  variables["add_generation_prompt"] = false;
  return template_.render(variables);
}

}  // namespace spillway
