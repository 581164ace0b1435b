// Reads the object on a line of JSONL in one of the shapes that people's data have, told by their keys:
//   input_ids, labels                             tokens
//   text                                          a text
//   messages, tools                               a conversation, as OpenAI and transformers write it
//   conversations (from, value), system, tools    the same, as ShareGPT writes it
//   instruction, input, output, system, history   the same, as Alpaca writes it
//   prompt, completion                            a text of which the second part has loss; or messages
// A row of two shapes is refused, and so is one of a preference pair (chosen, rejected). Where --data-columns names the keys of a
// shape, rows are of that shape, whatever else they have.
// Not here: tokens of text (row_encoder.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/chat/loss_spans.h"
#include "trainer/options/data_columns.h"

namespace spillway {

enum class RowShape : std::uint8_t { ids, text, completion, conversation };

struct RowContent {
  RowShape shape = RowShape::text;
  std::string_view key;              // the key that tells the shape, for messages
  std::vector<std::int32_t> ids;     // of RowShape::ids, at most `most`
  std::vector<std::int32_t> labels;  // likewise
  std::int64_t ids_found = 0;        // how many there were
  bool has_labels = false;
  std::string text;                  // of text and completion
  std::size_t completion_begin = 0;  // offset in `text`
  Conversation conversation;
};

struct RowLimits {
  std::int64_t most = INT64_MAX;        // ids that are kept, so that a hostile row costs no memory
  std::int64_t vocabulary = INT32_MAX;  // ids are below it
  DataColumns columns = {};             // other names of the keys
};

// Fills `content`, whose vectors keep their memory. Returns why the line is refused; empty if it is not.
std::string read_row(std::string_view line, const RowLimits& limits, RowContent& content);

}  // namespace spillway
