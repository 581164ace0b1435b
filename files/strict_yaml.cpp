#include "files/strict_yaml.h"

#include <fmt/core.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>

#include "files/strict_json.h"
#include "memory/base/error.h"

namespace spillway {
namespace {

constexpr std::size_t kMaxDepth = 64;
constexpr std::size_t kMostValues = 100'000;
constexpr std::size_t kMostBytes = std::size_t{4} << 20;  // of all words, with copies by aliases

std::string at(const std::string& file, std::int64_t line) { return fmt::format("{}: line {}", file, line); }

// Builds the value from the parser's events. Every event of a document passes here, so this is where what it may be is bounded.
class Builder : public YAML::EventHandler {
 public:
  explicit Builder(const std::string& file) : file_(file) {}

  YamlValue take() { return std::move(whole_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) throw InputError(fmt::format("{}: found a second document, allowed: one", at(file_, line_of(mark))));
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add({.line = line_of(mark)}, anchor); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& text) override {
    refuse_tag(mark, tag);
    add({.kind = tag == "!" ? YamlKind::quoted : YamlKind::plain, .line = line_of(mark), .text = text}, anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlKind::list);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlKind::block);
  }
  void OnMapEnd() override { close(); }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const std::int64_t line = line_of(mark);
    const auto found = anchored_.find(anchor);
    if (found == anchored_.end())
      throw InputError(fmt::format("{}: found an alias within its own anchor, allowed: of a value before it", at(file_, line)));
    const Anchored& original = found->second;
    refuse_depth(line, original.depth);
    count(line, original.values, original.bytes);
    YamlValue copy = original.value;
    copy.line = line;
    put(std::move(copy), original.depth);
  }

 private:
  struct Anchored {
    YamlValue value;
    std::size_t depth, values, bytes;  // of all that is in it
  };
  // A list or block that has not ended.
  struct Open {
    YamlValue value;
    YAML::anchor_t anchor = 0;
    std::size_t depth = 1;                      // of what is in it so far, itself included
    std::size_t values_before, bytes_before;    // what was counted when it began
    std::optional<YamlKey> key;                 // of a block: the key whose value comes next
    std::map<std::string, std::int64_t> lines;  // of a block: where each key is
  };

  static std::int64_t line_of(const YAML::Mark& mark) { return std::int64_t{mark.line} + 1; }

  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (tag.empty() || tag == "?" || tag == "!") return;
    throw InputError(
        fmt::format("{}: found the tag {}, allowed: values without tags", at(file_, line_of(mark)), shown_name(tag)));
  }

  void refuse_depth(std::int64_t line, std::size_t more) const {
    if (open_.size() + more > kMaxDepth)
      throw InputError(fmt::format("{}: its YAML is nested more than {} deep", at(file_, line), kMaxDepth));
  }

  void count(std::int64_t line, std::size_t values, std::size_t bytes) {
    values_ += values;
    bytes_ += bytes;
    if (values_ > kMostValues)
      throw InputError(fmt::format("{}: found more than {} values, counted as often as anchors and aliases repeat them",
                                   at(file_, line), kMostValues));
    if (bytes_ > kMostBytes)
      throw InputError(fmt::format("{}: found more than {} bytes of words, counted as often as anchors and aliases repeat them",
                                   at(file_, line), kMostBytes));
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlKind kind) {
    const std::int64_t line = line_of(mark);
    refuse_tag(mark, tag);
    if (is_key_next()) refuse_key(line, kind == YamlKind::list ? "a list" : "a block");
    refuse_depth(line, 1);
    open_.push_back({.value = {.kind = kind, .line = line}, .anchor = anchor, .values_before = values_, .bytes_before = bytes_});
    count(line, 1, 0);
  }

  void close() {
    Open ended = std::move(open_.back());
    open_.pop_back();
    if (ended.anchor != 0)
      keep(ended.anchor, ended.value, ended.depth, values_ - ended.values_before, bytes_ - ended.bytes_before);
    put(std::move(ended.value), ended.depth);
  }

  void add(YamlValue word, YAML::anchor_t anchor) {
    const std::size_t bytes = word.text.size();
    count(word.line, 1, bytes);
    if (word.text.find('\0') != std::string::npos)
      throw InputError(fmt::format("{}: found a word with the character 0, allowed: text", at(file_, word.line)));
    if (anchor != 0) keep(anchor, word, 0, 1, bytes);
    put(std::move(word), 0);
  }

  // The copy that aliases copy.
  void keep(YAML::anchor_t anchor, const YamlValue& value, std::size_t depth, std::size_t values, std::size_t bytes) {
    count(value.line, values, bytes);
    anchored_[anchor] = {value, depth, values, bytes};
  }

  bool is_key_next() const { return !open_.empty() && open_.back().value.kind == YamlKind::block && !open_.back().key; }

  [[noreturn]] void refuse_key(std::int64_t line, std::string_view found) const {
    throw InputError(fmt::format("{}: found {} as a key, allowed: a word", at(file_, line), found));
  }

  // A value that is whole goes to where it stands: `depth` is what is in it.
  void put(YamlValue value, std::size_t depth) {
    if (open_.empty()) {
      whole_ = std::move(value);
      return;
    }
    if (is_key_next()) return put_key(value);
    Open& around = open_.back();
    around.depth = std::max(around.depth, depth + 1);
    if (around.key) {
      around.value.keys.push_back(std::move(*around.key));
      around.key.reset();
    }
    around.value.values.push_back(std::move(value));
  }

  void put_key(const YamlValue& key) {
    if (key.kind != YamlKind::plain && key.kind != YamlKind::quoted) refuse_key(key.line, shown(key));
    if (key.kind == YamlKind::plain && key.text == "<<") {
      throw InputError(fmt::format("{}: found a merge key (<<), allowed: the keys themselves", at(file_, key.line)));
    }
    Open& block = open_.back();
    const auto [place, is_new] = block.lines.try_emplace(key.text, key.line);
    if (!is_new) {
      throw InputError(fmt::format("{}: the key {} is there twice, first on line {}", at(file_, key.line), shown_name(key.text),
                                   place->second),
                       "Leave one of them.");
    }
    block.key = YamlKey{.name = key.text, .line = key.line};
  }

  const std::string& file_;
  YamlValue whole_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, Anchored> anchored_;  // those that have ended
  std::size_t documents_ = 0, values_ = 0, bytes_ = 0;
};

// The parser takes some control characters for the end of the text, and lets bytes that are no UTF-8 pass.
void refuse_bytes(std::string_view text, const std::string& file) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  std::int64_t line = 1;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == '\n') ++line;
    if ((byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7f)
      throw InputError(fmt::format("{}: found the byte 0x{:02x}, allowed: UTF-8 text", at(file, line), byte));
  }
  try {
    (void)nlohmann::json(std::string(text)).dump();
  } catch (const nlohmann::json::exception&) {
    throw InputError(fmt::format("{}: found bytes that are not UTF-8, allowed: UTF-8 text", file));
  }
}

}  // namespace

YamlValue parse_strict_yaml(std::string_view text, const std::string& file) {
  refuse_bytes(text, file);
  Builder builder(file);
  try {
    // Without the mark, a quote that is open at the end would be taken as closed there, and the keys in it as its text.
    std::istringstream stream{std::string(text) + "\n...\n"};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    const std::string place =
        error.mark.is_null() ? "" : fmt::format(" at line {}, column {}", error.mark.line + 1, error.mark.column + 1);
    throw InputError(fmt::format("{}: not valid YAML{}: {}", file, place, shown_name(error.msg)));
  }
  YamlValue whole = builder.take();
  if (whole.kind == YamlKind::null) throw InputError(fmt::format("{}: is empty; YAML was expected", file));
  return whole;
}

std::string shown(const YamlValue& value) {
  switch (value.kind) {
    case YamlKind::null: return "null";
    case YamlKind::plain:
    case YamlKind::quoted: return shown_name(value.text);
    case YamlKind::list: return fmt::format("a list of {} values", value.values.size());
    case YamlKind::block: return fmt::format("a block of {} keys", value.values.size());
  }
  return "";
}

}  // namespace spillway
