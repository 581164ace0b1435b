#include "trainer/chat/chat_template.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "files/json_text.h"
#include "files/posix_file.h"
#include "memory/base/error.h"
#include "trainer/chat/template_json.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Value = TemplateValue;
using Kind = TemplateValue::Kind;

constexpr Bytes kLargestFile = 16 * kMiB;

struct Source {
  std::string text;
  std::string origin;
};
using Sources = std::map<std::string, Source>;  // by name

json config_of(const fs::path& file) {
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return json::object();
  json config = parsed_json(read_text_file(file.string(), kLargestFile));
  if (!config.is_object()) throw InputError(fmt::format("{}: found no JSON object", file.string()));
  return config;
}

// Finds chat_template.jinja, and templates with other names in a folder beside it.
Sources templates_in_files(const fs::path& directory) {
  Sources found;
  std::error_code ignored;
  const auto add = [&](const std::string& name, const fs::path& file) {
    if (fs::is_regular_file(file, ignored)) found[name] = {read_text_file(file.string(), kLargestFile), file.string()};
  };
  add("default", directory / "chat_template.jinja");
  add("tool_use", directory / "additional_chat_templates" / "tool_use.jinja");
  return found;
}

// Reads one template, or a list of templates with names.
Sources templates_in(const json& config, const std::string& origin) {
  Sources found;
  const auto given = config.find("chat_template");
  if (given == config.end()) return found;
  if (given->is_string()) found["default"] = {*given, origin};
  if (!given->is_array()) return found;
  for (const json& entry : *given) {
    const auto has_text = [&](const char* key) { return entry.is_object() && entry.contains(key) && entry[key].is_string(); };
    if (has_text("name") && has_text("template")) found[entry["name"]] = {entry["template"], origin};
  }
  return found;
}

// A special token is text, or an object with "content".
void add_special_token(const std::string& name, const json& token, Value::Entries& tokens) {
  const bool has_content = token.is_object() && token.contains("content") && token["content"].is_string();
  if (token.is_string() || has_content)
    tokens.emplace_back(Value(name), Value((has_content ? token["content"] : token).get<std::string>()));
}

// Adds "bos_token" and its kind, and the entries of "extra_special_tokens" that have names.
void add_special_tokens(const json& config, Value::Entries& tokens) {
  for (const auto& [name, value] : config.items()) {
    if (name.ends_with("_token")) add_special_token(name, value, tokens);
    if (name != "extra_special_tokens" || !value.is_object()) continue;
    for (const auto& [extra, token] : value.items()) add_special_token(extra, token, tokens);
  }
}

const Value* entry_of(const Value& object, const char* key) { return find_entry(object, Value(key)); }

void check_message(const Value& message, std::size_t i) {
  if (!message.is(Kind::dictionary))
    throw InputError(fmt::format("message {} is {}, allowed: an object with \"role\" and \"content\"", i, kind_name(message)));
  const Value* const role = entry_of(message, "role");
  if (role == nullptr || !role->is_text()) throw InputError(fmt::format("message {} has no \"role\", allowed: a string", i));
  if (entry_of(message, "content") == nullptr && entry_of(message, "tool_calls") == nullptr)
    throw InputError(fmt::format("message {} has no \"content\"", i));
}

// Prepares a message for templates as the reference does. Templates know an assistant's reasoning by one of three names: the
// first one present fills "reasoning_content", and "thinking" if that is missing.
Value prepared(const Value& message) {
  Value::Entries entries;
  for (const Value::Entry& entry : entries_of(message)) {
    if (!entry.second.is(Kind::none)) entries.push_back(entry);
  }
  Value made = Value::dictionary(entries);
  for (const char* const name : {"reasoning_content", "thinking", "reasoning"}) {
    const Value* const thought = entry_of(made, name);
    if (thought == nullptr) continue;
    entries.insert(entries.begin(), {Value("thinking"), *thought});  // the message's own value wins, but in this position
    entries.emplace_back(Value("reasoning_content"), *thought);
    return Value::dictionary(std::move(entries));
  }
  return made;
}

Value prepared_messages(const Value& messages) {
  if (!messages.is(Kind::list))
    throw InputError(
        fmt::format("\"messages\" is {}, allowed: an array of objects with \"role\" and \"content\"", kind_name(messages)));
  Value::Items all;
  for (const Value& message : messages.sequence().items) {
    check_message(message, all.size());
    all.push_back(prepared(message));
  }
  if (all.empty()) throw InputError("found no message in \"messages\", allowed: at least one");
  return Value::list(std::move(all));
}

void check_tools(const Value& tools) {
  if (tools.is(Kind::none)) return;
  const bool is_list = tools.is(Kind::list) &&
                       std::ranges::all_of(tools.sequence().items, [](const Value& tool) { return tool.is(Kind::dictionary); });
  if (!is_list) throw InputError("\"tools\" is no array of objects, allowed: that, or null");
}

}  // namespace

ChatTemplate::ChatTemplate(Template text, std::optional<Template> with_tools, TemplateValue::Entries variables,
                           const TemplateDate& date)
    : template_(std::move(text)), with_tools_(std::move(with_tools)), variables_(std::move(variables)), date_(date) {}

ChatTemplate ChatTemplate::load(const fs::path& tokenizer, const TemplateDate& date) {
  std::error_code ignored;
  const fs::path directory = fs::is_directory(tokenizer, ignored) ? tokenizer : tokenizer.parent_path();
  const fs::path settings = directory / "tokenizer_config.json";
  const json config = config_of(settings);
  Sources sources = templates_in_files(directory);
  if (sources.empty()) sources = templates_in(config, settings.string() + ": chat_template");
  const auto text = sources.find("default"), with_tools = sources.find("tool_use");
  if (text == sources.end()) {
    throw InputError(
        fmt::format("{}: found no chat template for \"messages\", allowed: a chat_template.jinja, or \"chat_template\" in "
                    "tokenizer_config.json",
                    (directory.empty() ? fs::path(".") : directory).string()),
        "it says how a conversation becomes the text that the model reads; or write rows of \"text\" or \"input_ids\"");
  }
  std::optional<Template> for_tools;
  if (with_tools != sources.end()) for_tools.emplace(with_tools->second.text, with_tools->second.origin);
  Value::Entries variables;
  add_special_tokens(config, variables);
  return {Template(text->second.text, text->second.origin), std::move(for_tools), std::move(variables), date};
}

std::string ChatTemplate::render(std::string_view row) const {
  Value parsed;
  try {
    parsed = read_template_json(row);
  } catch (const TemplateProblem& problem) {
    throw InputError(fmt::format("found {}", problem.found));
  }
  if (!parsed.is(Kind::dictionary) || entry_of(parsed, "messages") == nullptr) throw InputError("found no \"messages\"");
  const Value* const given = entry_of(parsed, "tools");
  const Value tools = given != nullptr ? *given : Value(nullptr);
  const Value variables = variables_for(*entry_of(parsed, "messages"), tools, GenerationPrompt::leave_out);
  return template_for(tools).render(variables, date_, TemplateMarks::none).text;
}

RenderedChat ChatTemplate::render_with_spans(const Value& messages, const Value& tools, GenerationPrompt prompt) const {
  TemplateText made = template_for(tools).render(variables_for(messages, tools, prompt), date_, TemplateMarks::generated);
  return {.text = std::move(made.text), .generated = std::move(made.generated)};
}

bool ChatTemplate::has_generation_tags() const {
  return template_.has_generation_tags() || (with_tools_ && with_tools_->has_generation_tags());
}

const Template& ChatTemplate::template_for(const Value& tools) const {
  return with_tools_ && !tools.is(Kind::none) ? *with_tools_ : template_;
}

Value ChatTemplate::variables_for(const Value& messages, const Value& tools, GenerationPrompt prompt) const {
  check_tools(tools);
  Value::Entries variables = variables_;
  variables.emplace_back(Value("messages"), prepared_messages(messages));
  variables.emplace_back(Value("tools"), tools);
  variables.emplace_back(Value("documents"), Value(nullptr));
  variables.emplace_back(Value("add_generation_prompt"), Value(prompt == GenerationPrompt::add));
  return Value::dictionary(std::move(variables));
}

}  // namespace spillway
