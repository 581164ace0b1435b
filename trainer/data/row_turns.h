// Turns of rows that are conversations, or have a prompt and an answer. Not here: which shape a row has (row_content.h).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>

#include "trainer/chat/loss_spans.h"
#include "trainer/options/data_columns.h"

namespace spillway {

struct PromptAndCompletion {
  std::string text;              // one behind the other
  std::size_t completion_begin;  // offset in `text`
};

// Reads a row, a JSON object, of the shape that has this key: messages, conversations, instruction or prompt. Throws InputError
// if the keys of the shape have other values than they should. `columns`: other names of the keys; a role that has another name
// may be one of ShareGPT's speakers, too.
std::variant<Conversation, PromptAndCompletion> read_turns(std::string_view row, std::string_view key,
                                                           const DataColumns& columns);

}  // namespace spillway
