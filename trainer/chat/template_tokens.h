// A place in the tokens of a template, with what parsers ask there: is it this word, then go behind it.
// Not here: cutting a source into tokens (template_lexer.h), grammar (template_parse.cpp, template_parse_expression.h).
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "files/json_text.h"
#include "memory/base/error.h"
#include "trainer/chat/template_lexer.h"

namespace spillway {

// Its InputErrors name `origin`, which must outlive it, and the line.
class TemplateTokens {
 public:
  using Token = TemplateToken;

  TemplateTokens(std::vector<Token> tokens, const std::string& origin) : tokens_(std::move(tokens)), origin_(origin) {}

  const Token& now() const { return tokens_[at_]; }
  const Token& after() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& next() { return tokens_[at_++]; }

  [[noreturn]] void refuse(const std::string& found, const std::string& help = "") const {
    throw InputError(fmt::format("{}: line {}: {}", origin_, now().line, found), help);
  }
  [[noreturn]] void refuse_kind(const std::string& what) const {
    refuse(fmt::format("found {}, which is not in this version", what),
           "write the conversations as \"text\", or their \"input_ids\"");
  }

  bool is_symbol(std::string_view text) const { return now().kind == Token::Kind::symbol && now().text == text; }
  bool is_word(std::string_view text) const { return now().kind == Token::Kind::name && now().text == text; }
  bool take_symbol(std::string_view text) { return is_symbol(text) && (++at_, true); }
  bool take_word(std::string_view text) { return is_word(text) && (++at_, true); }
  void need_symbol(std::string_view text) {
    if (!take_symbol(text)) refuse(fmt::format("found {}, allowed: {}", shown(), text));
  }
  void need_word(std::string_view text) {
    if (!take_word(text)) refuse(fmt::format("found {}, allowed: {}", shown(), text));
  }
  std::string need_name() {
    if (now().kind != Token::Kind::name) refuse(fmt::format("found {}, allowed: a name", shown()));
    return next().text;
  }
  void need(Token::Kind kind) {
    if (now().kind != kind) refuse(fmt::format("found {}, allowed: the end of it", shown()));
    ++at_;
  }
  std::string shown() const {
    switch (now().kind) {
      case Token::Kind::end_block: return "%}";
      case Token::Kind::end_output: return "}}";
      case Token::Kind::end: return "the template's end";
      default: return quoted_json(now().text);
    }
  }

 private:
  std::vector<Token> tokens_;
  const std::string& origin_;
  std::size_t at_ = 0;
};

}  // namespace spillway
