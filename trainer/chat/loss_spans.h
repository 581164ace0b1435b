// Which bytes of a rendered conversation have loss: what the assistant says, and what the model must say to end its turn.
// Not here: the rendering (chat_template.h), tokens (trainer/data/row_encoder.h), end tokens that a template's tag leaves out.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "trainer/chat/chat_template.h"
#include "trainer/options/options.h"

namespace spillway {

struct Conversation {
  TemplateValue messages;         // a list of {role, content, ...}
  TemplateValue tools = nullptr;  // a list, or none
  std::size_t trained_from = 0;   // messages before this one have no loss
};

struct LossSpan {
  std::size_t begin, end;     // bytes of the text
  bool whole_tokens = false;  // a token that goes on beyond the end is not meant
  // Offset after what the message says. Behind the first end token from there on, only white space and end tokens are meant: a
  // template may go on with the next turn's header.
  std::size_t said_end = std::string::npos;
};

struct TextWithLoss {
  std::string text;
  std::vector<LossSpan> spans;  // ascending
};

// Renders the conversation and finds the spans, in the first of these ways that the template allows:
//   - its {% generation %} blocks;
//   - prefixes: the text before a turn (with the generation prompt) and the text up to its end are prefixes of the whole;
//   - the common prefix, turn by turn: where the prompt or the end differs, or an earlier turn loses its beginning.
// A message whose "weight" is 0 has no loss. Throws InputError for a conversation without a turn of the assistant that has loss,
// with a role that no shape of a row has, or whose spans cannot be found. TrainOn::all gives one span of the whole text, less
// messages of weight 0.
TextWithLoss text_with_loss(const ChatTemplate& chat, const Conversation& conversation, TrainOn train_on);

}  // namespace spillway
