// Cuts a template's source into tokens, with white space as Jinja leaves it: trim_blocks and lstrip_blocks are on, as Hugging
// Face sets them; a line ends with CR, LF or both and becomes LF; the newline at the end is not text.
// Not here: the meaning of tokens (template_parse.cpp).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

struct TemplateToken {
  enum class Kind : std::uint8_t { text, begin_block, end_block, begin_output, end_output, name, string, number, symbol, end };
  Kind kind = Kind::end;
  std::string text;
  int line = 1;
};

// The last token is the end. An InputError names `origin` and the line.
std::vector<TemplateToken> cut_template(std::string_view source, const std::string& origin);

}  // namespace spillway
