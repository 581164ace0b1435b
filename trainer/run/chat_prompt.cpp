#include "trainer/run/chat_prompt.h"

#include <nlohmann/json.hpp>

#include "memory/base/error.h"
#include "trainer/chat/chat_template.h"
#include "trainer/chat/template_json.h"

namespace spillway {

std::vector<std::int32_t> chat_prompt(const RunOptions& options, const TextCodec& codec, const std::string& message) {
  const std::string tokenizer = tokenizer_of(options);
  if (tokenizer == "bytes")
    throw InputError("--tokenizer: found bytes, which has no chat template, allowed: a tokenizer.json with one beside it");
  const nlohmann::json messages = {{{"role", "user"}, {"content", message}}};
  const std::string& date = options.data.template_date;
  const ChatTemplate chat = ChatTemplate::load(tokenizer, date.empty() ? TemplateDate::today() : TemplateDate::from_text(date));
  // Invalid UTF-8 is refused with the tokens.
  const std::string json = messages.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return codec.as_it_is(chat.render_with_spans(read_template_json(json), TemplateValue(nullptr), GenerationPrompt::add).text);
}

}  // namespace spillway
