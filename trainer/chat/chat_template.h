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

// A rendered conversation, and the bytes of it that lie within {% generation %} blocks, [begin, end), ascending: one span for
// each block that was rendered, which is empty if the block made no text. A block within another has no span of its own.
struct RenderedChat {
  std::string text;
  TemplateSpans generated;
};

enum class GenerationPrompt : std::uint8_t { leave_out, add };

class ChatTemplate {
 public:
  // Loads the template that lies beside the tokenizer (a tokenizer.json, or a directory that has one): chat_template.jinja, else
  // "chat_template" of tokenizer_config.json. Throws InputError if there is neither. If there are several templates by name,
  // "tool_use" is for rows with tools and "default" for the others. `date` is what templates learn from strftime_now().
  static ChatTemplate load(const std::filesystem::path& tokenizer, const TemplateDate& date = TemplateDate::today());

  // `row` is a JSON object with "messages", and with "tools" if the template should know them. Returns the text that transformers
  // renders without a generation prompt, with its special tokens. As in transformers, null keys of a message count as missing,
  // and an assistant's reasoning has the names "reasoning_content" and "thinking", whichever of them (or "reasoning") the row
  // has.
  std::string render(std::string_view row) const;

  // Renders messages (a list of dictionaries) and tools (a list of dictionaries, or none), as read_template_json
  // (template_json.h) gives them, with the bytes that the template says are the assistant's. Copies of them are cheap: values
  // share their parts.
  RenderedChat render_with_spans(const TemplateValue& messages, const TemplateValue& tools, GenerationPrompt prompt) const;

  // Returns true if the template, or the one for rows with tools, says with {% generation %} what the assistant says.
  bool has_generation_tags() const;

 private:
  const Template& template_for(const TemplateValue& tools) const;
  TemplateValue variables_for(const TemplateValue& messages, const TemplateValue& tools, GenerationPrompt prompt) const;

  ChatTemplate(Template text, std::optional<Template> with_tools, TemplateValue::Entries variables, const TemplateDate& date);

  Template template_;
  std::optional<Template> with_tools_;
  TemplateValue::Entries variables_;  // special tokens by name
  TemplateDate date_;
};

}  // namespace spillway
