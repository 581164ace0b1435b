#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <optional>

#include "memory/error.h"
#include "trainer/template_syntax.h"

namespace spillway {
namespace {

using Expression = TemplateExpression;
using Statement = TemplateStatement;

constexpr int kDeepest = 200;  // of expressions and statements within each other

struct Token {
  enum class Kind : std::uint8_t { text, begin_block, end_block, begin_output, end_output, name, string, number, symbol, end };
  Kind kind = Kind::end;
  std::string text;
  int line = 1;
};

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v'; }

// Cuts the source as Jinja does with trim_blocks and lstrip_blocks: the newline after a block and the spaces before one are not
// text.
class Lexer {
 public:
  Lexer(std::string_view source, const std::string& origin) : source_(source), origin_(origin) {
    if (source_.ends_with('\n')) source_.remove_suffix(1);
    if (source_.ends_with('\r')) source_.remove_suffix(1);
  }

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const std::size_t open = next_open();
      text(source_.substr(at_, open - at_), open);
      if (open == source_.size()) break;
      at_ = open + 2;
      const char kind = source_[open + 1];
      if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) ++at_;
      if (kind == '#')
        comment();
      else
        code(kind == '%');
    }
    add(Token::Kind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void refuse(const std::string& found) const {
    throw InputError(fmt::format("{}: line {}: {}", origin_, line_, found));
  }
  void add(Token::Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void pass(std::size_t to) {
    line_ += static_cast<int>(
        std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_), source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }
  std::size_t next_open() const {
    for (std::size_t i = at_; i + 1 < source_.size(); ++i) {
      if (source_[i] == '{' && (source_[i + 1] == '%' || source_[i + 1] == '{' || source_[i + 1] == '#')) return i;
    }
    return source_.size();
  }
  void text(std::string_view text, std::size_t open) {
    const std::size_t end = at_ + text.size();
    if (trims_all_) {
      while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
    } else if (trims_newline_) {
      if (text.starts_with("\r\n"))
        text.remove_prefix(2);
      else if (text.starts_with('\n'))
        text.remove_prefix(1);
    }
    if (open < source_.size()) {
      const char mark = open + 2 < source_.size() ? source_[open + 2] : ' ';
      if (mark == '-') {
        while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
      } else if (mark != '+' && source_[open + 1] != '{') {
        // Only where nothing but spaces stands before the block on its line.
        std::size_t begin = text.size();
        while (begin > 0 && (text[begin - 1] == ' ' || text[begin - 1] == '\t')) --begin;
        const bool at_line = begin > 0 ? text[begin - 1] == '\n' : is_at_line_start(end - text.size());
        if (at_line) text = text.substr(0, begin);
      }
    }
    if (!text.empty()) add(Token::Kind::text, std::string(text));
    pass(end);
    trims_all_ = trims_newline_ = false;
  }
  bool is_at_line_start(std::size_t at) const { return at == 0 || source_[at - 1] == '\n'; }
  void comment() {
    const std::size_t close = source_.find("#}", at_);
    if (close == source_.npos) refuse("found no #} for a {#");
    trims_all_ = close > at_ && source_[close - 1] == '-';
    trims_newline_ = true;
    pass(close + 2);
  }
  void code(bool is_block) {
    add(is_block ? Token::Kind::begin_block : Token::Kind::begin_output, "");
    const std::string_view close = is_block ? "%}" : "}}";
    int braces = 0;  // an object within {{ }} ends with the same sign
    for (;;) {
      while (at_ < source_.size() && is_space(source_[at_])) pass(at_ + 1);
      if (at_ >= source_.size()) refuse(fmt::format("found no {} for a {}", close, is_block ? "{%" : "{{"));
      const std::string_view rest = source_.substr(at_);
      const bool has_mark = (rest[0] == '-' || rest[0] == '+') && rest.substr(1).starts_with(close);
      if (braces == 0 && (has_mark || rest.starts_with(close))) {
        trims_all_ = has_mark && rest[0] == '-';
        trims_newline_ = is_block && !(has_mark && rest[0] == '+');
        pass(at_ + (has_mark ? 3 : 2));
        add(is_block ? Token::Kind::end_block : Token::Kind::end_output, "");
        return;
      }
      if (rest[0] == '{') ++braces;
      if (rest[0] == '}') --braces;
      item(rest);
    }
  }
  void item(std::string_view rest) {
    if (is_name_start(rest[0])) {
      std::size_t end = 1;
      while (end < rest.size() && (is_name_start(rest[end]) || is_digit(rest[end]))) ++end;
      add(Token::Kind::name, std::string(rest.substr(0, end)));
      return pass(at_ + end);
    }
    if (is_digit(rest[0])) {
      std::size_t end = 1;
      while (end < rest.size() && (is_digit(rest[end]) || (rest[end] == '.' && end + 1 < rest.size() && is_digit(rest[end + 1]))))
        ++end;
      add(Token::Kind::number, std::string(rest.substr(0, end)));
      return pass(at_ + end);
    }
    if (rest[0] == '\'' || rest[0] == '"') return string(rest);
    for (const std::string_view symbol : {"==", "!=", "<=", ">=", "//", "**"}) {
      if (!rest.starts_with(symbol)) continue;
      add(Token::Kind::symbol, std::string(symbol));
      return pass(at_ + 2);
    }
    if (std::string_view("+-*/%~|.,:()[]{}<>=").find(rest[0]) == std::string_view::npos)
      refuse(fmt::format("found {}",
                         nlohmann::json(std::string(1, rest[0])).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)));
    add(Token::Kind::symbol, std::string(1, rest[0]));
    pass(at_ + 1);
  }
  void string(std::string_view rest) {
    std::string value;
    std::size_t i = 1;
    for (; i < rest.size() && rest[i] != rest[0]; ++i) {
      if (rest[i] != '\\' || i + 1 == rest.size()) {
        value += rest[i];
        continue;
      }
      const char c = rest[++i];
      if (c == 'x' || c == 'u' || c == 'U' || is_digit(c))
        refuse(fmt::format("found \\{} in a string, allowed: \\n, \\r, \\t, quotes", c));
      switch (c) {
        case 'n':
          value += '\n';
          break;
        case 'r':
          value += '\r';
          break;
        case 't':
          value += '\t';
          break;
        case '\n':
          break;
        case '\\':
        case '\'':
        case '"':
          value += c;
          break;
        default:
          value += '\\', value += c;
      }
    }
    if (i == rest.size()) refuse("found a string without an end");
    add(Token::Kind::string, value);
    pass(at_ + i + 1);
  }

  std::string_view source_;
  const std::string& origin_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool trims_all_ = false;      // white space that follows
  bool trims_newline_ = false;  // one newline that follows
};

class Parser {
 public:
  Parser(std::vector<Token> tokens, const std::string& origin) : tokens_(std::move(tokens)), origin_(origin) {}

  TemplateBody whole() {
    TemplateBody body = statements({});
    if (now().kind != Token::Kind::end) refuse("found more than the template's end");
    return body;
  }

 private:
  const Token& now() const { return tokens_[at_]; }
  const Token& after() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
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
    return tokens_[at_++].text;
  }
  void need(Token::Kind kind) {
    if (now().kind != kind) refuse(fmt::format("found {}, allowed: the end of it", shown()));
    ++at_;
  }
  std::string shown() const {
    switch (now().kind) {
      case Token::Kind::end_block:
        return "%}";
      case Token::Kind::end_output:
        return "}}";
      case Token::Kind::end:
        return "the template's end";
      default:
        return nlohmann::json(now().text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    }
  }

  // Up to a block that begins with one of these words, which is left there.
  TemplateBody statements(std::initializer_list<std::string_view> ends) {
    if (++depth_ > kDeepest) refuse("found blocks that are too deep within each other");
    TemplateBody body;
    for (;;) {
      const Token& token = now();
      if (token.kind == Token::Kind::text) {
        body.statements.push_back({.kind = Statement::Kind::text, .text = token.text});
        ++at_;
      } else if (token.kind == Token::Kind::begin_output) {
        ++at_;
        body.statements.push_back({.kind = Statement::Kind::output, .expressions = {expression()}});
        need(Token::Kind::end_output);
      } else if (token.kind == Token::Kind::begin_block) {
        if (std::ranges::find(ends, after().text) != ends.end()) break;
        ++at_;
        if (take_word("generation") || take_word("endgeneration")) {  // marks what an assistant said; nothing is made of it
          need(Token::Kind::end_block);
          continue;
        }
        body.statements.push_back(block());
      } else {
        break;
      }
    }
    --depth_;
    return body;
  }
  void end_block(std::string_view word) {
    if (now().kind != Token::Kind::begin_block) refuse(fmt::format("found {}, allowed: {}", shown(), word));
    ++at_;
    need_word(word);
    need(Token::Kind::end_block);
  }
  Statement block() {
    if (take_word("if")) return branches();
    if (take_word("for")) return loop();
    if (take_word("set")) return set();
    for (const auto& [word, kind] :
         {std::pair("break", Statement::Kind::break_loop), std::pair("continue", Statement::Kind::continue_loop)}) {
      if (!take_word(word)) continue;
      if (loops_ == 0) refuse(fmt::format("found {} outside of a loop", word));
      need(Token::Kind::end_block);
      return {.kind = kind};
    }
    refuse_kind("{% " + now().text + " %}");
  }
  Statement branches() {
    Statement statement{.kind = Statement::Kind::branches};
    statement.expressions.push_back(expression());
    need(Token::Kind::end_block);
    for (;;) {
      statement.bodies.push_back(statements({"elif", "else", "endif"}));
      if (now().kind != Token::Kind::begin_block) refuse("found no {% endif %}");
      ++at_;
      if (take_word("endif")) break;
      if (take_word("elif")) {
        statement.expressions.push_back(expression());
        need(Token::Kind::end_block);
        continue;
      }
      need_word("else");
      need(Token::Kind::end_block);
      statement.bodies.push_back(statements({"endif"}));
      end_block("endif");
      return statement;
    }
    need(Token::Kind::end_block);
    return statement;
  }
  Statement loop() {
    Statement statement{.kind = Statement::Kind::loop};
    const bool has_parentheses = take_symbol("(");
    do {
      statement.names.push_back(need_name());
    } while (take_symbol(","));
    if (has_parentheses) need_symbol(")");
    need_word("in");
    statement.expressions.push_back(either());
    if (take_word("if")) statement.expressions.push_back(expression());
    if (is_word("recursive")) refuse_kind("a recursive loop");
    need(Token::Kind::end_block);
    ++loops_;
    statement.bodies.push_back(statements({"else", "endfor"}));
    --loops_;
    if (now().kind == Token::Kind::begin_block && after().text == "else") {
      at_ += 2;
      need(Token::Kind::end_block);
      statement.bodies.push_back(statements({"endfor"}));
    }
    end_block("endfor");
    return statement;
  }
  Statement set() {
    Statement statement{.kind = Statement::Kind::set};
    statement.names.push_back(need_name());
    if (take_symbol(".")) statement.names.push_back(need_name());
    if (take_symbol("=")) {
      statement.expressions.push_back(expression());
      need(Token::Kind::end_block);
      return statement;
    }
    if (is_symbol(",")) refuse_kind("set with several names");
    need(Token::Kind::end_block);
    statement.kind = Statement::Kind::set_body;
    statement.bodies.push_back(statements({"endset"}));
    end_block("endset");
    return statement;
  }

  Expression make(Expression::Kind kind, std::string name, std::vector<Expression> parts) const {
    return {.kind = kind, .line = now().line, .name = std::move(name), .parts = std::move(parts)};
  }
  Expression undefined() const { return {.line = now().line, .value = TemplateValue(TemplateValue::value_t::discarded)}; }

  // Jinja's order, from the loosest: if, or, and, not, comparisons, + -, ~, * / // %, unary, then filters and tests.
  Expression expression() {
    if (++depth_ > kDeepest) refuse("found an expression that is too deep");
    Expression value = either();
    while (take_word("if")) {
      Expression condition = either();
      Expression otherwise = take_word("else") ? expression() : undefined();
      value = make(Expression::Kind::conditional, "", {std::move(value), std::move(condition), std::move(otherwise)});
    }
    --depth_;
    return value;
  }
  Expression either() {
    Expression left = both();
    while (take_word("or")) left = make(Expression::Kind::binary, "or", {std::move(left), both()});
    return left;
  }
  Expression both() {
    Expression left = negated();
    while (take_word("and")) left = make(Expression::Kind::binary, "and", {std::move(left), negated()});
    return left;
  }
  Expression negated() {
    if (!take_word("not")) return comparison();
    if (++depth_ > kDeepest) refuse("found an expression that is too deep");
    Expression value = make(Expression::Kind::negation, "", {negated()});
    --depth_;
    return value;
  }
  Expression comparison() {
    Expression left = sum();
    for (bool is_first = true;; is_first = false) {
      std::string name;
      for (const std::string_view symbol : {"==", "!=", "<=", ">=", "<", ">"}) {
        if (name.empty() && take_symbol(symbol)) name = symbol;
      }
      if (name.empty() && take_word("in")) name = "in";
      if (name.empty() && is_word("not") && after().kind == Token::Kind::name && after().text == "in") at_ += 2, name = "not in";
      if (name.empty()) return left;
      if (!is_first) refuse_kind("a chain of comparisons");
      left = make(Expression::Kind::binary, name, {std::move(left), sum()});
    }
  }
  Expression sum() {
    Expression left = concatenation();
    for (;;) {
      const std::string name = now().text;
      if (!take_symbol("+") && !take_symbol("-")) return left;
      left = make(Expression::Kind::binary, name, {std::move(left), concatenation()});
    }
  }
  Expression concatenation() {
    Expression left = product();
    while (take_symbol("~")) left = make(Expression::Kind::binary, "~", {std::move(left), product()});
    return left;
  }
  Expression product() {
    Expression left = signed_value();
    for (;;) {
      const std::string name = now().text;
      if (is_symbol("**")) refuse_kind("**");
      if (!take_symbol("*") && !take_symbol("//") && !take_symbol("/") && !take_symbol("%")) return left;
      left = make(Expression::Kind::binary, name, {std::move(left), signed_value()});
    }
  }
  Expression signed_value() {
    if (take_symbol("-")) return make(Expression::Kind::minus, "", {postfix(primary())});
    Expression value = postfix(primary());
    for (;;) {
      if (take_symbol("|")) {
        value = filter(std::move(value));
      } else if (take_word("is")) {
        value = test(std::move(value));
      } else {
        return value;
      }
    }
  }
  Expression filter(Expression value) {
    std::string name = need_name();
    if (!is_template_filter(name)) refuse_kind("the filter " + name);
    Expression made = make(Expression::Kind::filter, std::move(name), {std::move(value)});
    if (take_symbol("(")) arguments(made);
    return postfix(std::move(made));
  }
  Expression test(Expression value) {
    const bool is_negated = take_word("not");
    std::string name = need_name();
    if (!is_template_test(name)) refuse_kind("the test " + name);
    Expression made = make(Expression::Kind::test, std::move(name), {std::move(value)});
    if (take_symbol("(")) arguments(made);
    return is_negated ? make(Expression::Kind::negation, "", {std::move(made)}) : made;
  }
  void arguments(Expression& call) {
    while (!take_symbol(")")) {
      if (now().kind == Token::Kind::name && after().kind == Token::Kind::symbol && after().text == "=") {
        call.names.push_back(need_name());
        ++at_;
        call.named.push_back(expression());
      } else {
        call.parts.push_back(expression());
      }
      if (!is_symbol(")")) need_symbol(",");
    }
  }
  Expression postfix(Expression value) {
    for (;;) {
      if (take_symbol(".")) {
        value = make(Expression::Kind::member, need_name(), {std::move(value)});
      } else if (take_symbol("(")) {
        Expression call = make(Expression::Kind::call, "", {std::move(value)});
        arguments(call);
        value = std::move(call);
      } else if (take_symbol("[")) {
        value = subscript(std::move(value));
      } else {
        return value;
      }
    }
  }
  Expression subscript(Expression value) {
    std::array<Expression, 3> bounds = {undefined(), undefined(), undefined()};
    std::size_t colons = 0;
    while (!is_symbol("]")) {
      if (is_symbol(":")) {
        if (++colons > 2) refuse("found a third : in a slice");
        ++at_;
      } else {
        bounds[colons] = expression();
      }
    }
    ++at_;
    if (colons == 0) return make(Expression::Kind::index, "", {std::move(value), std::move(bounds[0])});
    return make(Expression::Kind::slice, "",
                {std::move(value), std::move(bounds[0]), std::move(bounds[1]), std::move(bounds[2])});
  }
  Expression primary() {
    const Token& token = now();
    if (token.kind == Token::Kind::string) {
      Expression value = make(Expression::Kind::literal, "", {});
      std::string text;
      while (now().kind == Token::Kind::string) text += tokens_[at_++].text;  // neighbours are one
      value.value = text;
      return value;
    }
    if (token.kind == Token::Kind::number) return number();
    if (token.kind == Token::Kind::name) return word();
    if (take_symbol("(")) {
      Expression value = expression();
      if (is_symbol(",")) {
        value = make(Expression::Kind::list, "", {std::move(value)});
        while (take_symbol(",")) {
          if (!is_symbol(")")) value.parts.push_back(expression());
        }
      }
      need_symbol(")");
      return value;
    }
    if (take_symbol("[")) {
      Expression value = make(Expression::Kind::list, "", {});
      while (!take_symbol("]")) {
        value.parts.push_back(expression());
        if (!is_symbol("]")) need_symbol(",");
      }
      return value;
    }
    if (take_symbol("{")) {
      Expression value = make(Expression::Kind::object, "", {});
      while (!take_symbol("}")) {
        value.parts.push_back(expression());
        need_symbol(":");
        value.parts.push_back(expression());
        if (!is_symbol("}")) need_symbol(",");
      }
      return value;
    }
    refuse(fmt::format("found {}, allowed: a value", shown()));
  }
  Expression number() {
    Expression value = make(Expression::Kind::literal, "", {});
    const std::string& text = tokens_[at_++].text;
    const char* const end = text.data() + text.size();
    if (text.find('.') == text.npos) {
      std::int64_t whole = 0;
      if (const auto [stop, error] = std::from_chars(text.data(), end, whole); error != std::errc() || stop != end)
        refuse(fmt::format("found the number {}", text));
      value.value = whole;
    } else {
      double real = 0;
      if (const auto [stop, error] = std::from_chars(text.data(), end, real); error != std::errc() || stop != end)
        refuse(fmt::format("found the number {}", text));
      value.value = real;
    }
    return value;
  }
  Expression word() {
    const std::string name = tokens_[at_++].text;
    Expression value = make(Expression::Kind::literal, "", {});
    if (name == "true" || name == "True") {
      value.value = true;
    } else if (name == "false" || name == "False") {
      value.value = false;
    } else if (name == "none" || name == "None") {
      value.value = nullptr;
    } else {
      value.kind = Expression::Kind::name;
      value.name = name;
    }
    return value;
  }

  std::vector<Token> tokens_;
  const std::string& origin_;
  std::size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;
};

}  // namespace

TemplateBody parse_template(std::string_view source, const std::string& origin) {
  return Parser(Lexer(source, origin).run(), origin).whole();
}

}  // namespace spillway
