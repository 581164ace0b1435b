// Renders conversations ("messages" of a JSONL row) as the text that a model reads, by the chat template that comes with its
// tokenizer.
// Not here: the template language (template.h), tokens.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "trainer/chat/template.h"

namespace spillway {

class ChatTemplate {
 public:
  // Loads the template that lies beside the tokenizer (a tokenizer.json, or a directory that has one): chat_template.jinja, else
  // "chat_template" of tokenizer_config.json. Throws InputError if there is neither. If there are several templates by name,
  // "tool_use" is for rows with tools and "default" for the others.
  static ChatTemplate load(const std::filesystem::path& tokenizer);

  // `row` is a JSON object with "messages", and with "tools" if the template should know them. Returns the text that transformers
  // renders without a generation prompt, with its special tokens. As in transformers, null keys of a message count as missing,
  // and an assistant's reasoning has the names "reasoning_content" and "thinking", whichever of them (or "reasoning") the row
  // has.
  std::string render(std::string_view row) const;

 private:
  ChatTemplate(Template text, std::optional<Template> with_tools, TemplateValue::Entries variables);

  Template template_;
  std::optional<Template> with_tools_;
  TemplateValue::Entries variables_;  // special tokens by name
};

}  // namespace spillway
