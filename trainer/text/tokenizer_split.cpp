#include "trainer/text/tokenizer_split.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>

#include "files/json_text.h"
#include "files/strict_json.h"
#include "memory/base/error.h"
#include "trainer/text/tokenizer_newer.h"
#include "trainer/text/tokenizer_normalize.h"
#include "trainer/text/tokenizer_regex.h"
#include "trainer/text/tokenizer_unicode.h"
#include "trainer/text/utf8.h"

namespace spillway {
namespace {

// GPT-2's pattern, which a ByteLevel stage applies if "use_regex" is on.
constexpr std::string_view kByteLevelPattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

constexpr std::string_view kKinds = "Byte-level tokenizers are read, and those that mark spaces, of SentencePiece's kind.";

// Numbers that the reference's "Digits" stage knows and its regular expressions do not.
bool is_number_of_unicode_17(std::int32_t c) { return (c >= 0x11de0 && c <= 0x11de9) || (c >= 0x16ff4 && c <= 0x16ff6); }

enum class Behavior : std::uint8_t { isolated, removed, merged_with_previous, merged_with_next, contiguous };

}  // namespace

template <>
struct Names<Behavior> {
  static constexpr Named<Behavior> all[] = {{"Isolated", Behavior::isolated},
                                            {"Removed", Behavior::removed},
                                            {"MergedWithPrevious", Behavior::merged_with_previous},
                                            {"MergedWithNext", Behavior::merged_with_next},
                                            {"Contiguous", Behavior::contiguous}};
};

namespace {

// Joins matches and the text between them as the behavior says; emits each word as soon as it is complete.
class Joiner {
 public:
  Joiner(Behavior behavior, FunctionRef<void(std::size_t begin, std::size_t end)> word) : behavior_(behavior), word_(word) {}

  void add(std::size_t begin, std::size_t end, bool is_match) {
    switch (behavior_) {
      case Behavior::isolated: emit(begin, end); break;
      case Behavior::removed:
        if (!is_match) emit(begin, end);
        break;
      case Behavior::contiguous:
        if (has_held_ && is_match == held_is_match_) {
          held_end_ = end;
        } else {
          flush();
          hold(begin, end, is_match);
        }
        break;
      case Behavior::merged_with_previous:
        if (is_match && has_held_) {
          held_end_ = end;
          flush();
        } else {
          flush();
          if (is_match)
            emit(begin, end);
          else
            hold(begin, end, is_match);
        }
        break;
      case Behavior::merged_with_next:
        if (!is_match && has_held_) {
          held_end_ = end;
          flush();
        } else {
          flush();
          if (is_match)
            hold(begin, end, is_match);
          else
            emit(begin, end);
        }
        break;
    }
  }
  void flush() {
    if (has_held_) emit(held_begin_, held_end_);
    has_held_ = false;
  }

 private:
  void emit(std::size_t begin, std::size_t end) const {
    if (begin != end) word_(begin, end);
  }
  void hold(std::size_t begin, std::size_t end, bool is_match) {
    held_begin_ = begin;
    held_end_ = end;
    held_is_match_ = is_match;
    has_held_ = true;
  }

  Behavior behavior_;
  FunctionRef<void(std::size_t, std::size_t)> word_;
  std::size_t held_begin_ = 0;
  std::size_t held_end_ = 0;
  bool held_is_match_ = false;
  bool has_held_ = false;
};

}  // namespace

struct Splitter::Stage {
  enum class Kind : std::uint8_t { regex, literal, digits, spaces, prefix_space };
  Stage(Kind which, Behavior does) : kind(which), behavior(does) {}
  static std::unique_ptr<Stage> of_regex(std::string_view pattern, Behavior behavior, const std::string& origin);
  static std::unique_ptr<Stage> of_split(const JsonPlace& part, const std::string& origin);

  const Kind kind;
  const Behavior behavior;
  bool is_inverted = false;
  bool only_at_beginning = false;  // matches a prefix only
  std::unique_ptr<Regex> regex;
  std::string literal;
  bool looks_behind = false;

  template <typename Visit>
  void for_each_match(std::string_view text, OnigRegion* region, OnigMatchParam* param, const Visit& visit) const {
    if (kind == Kind::digits) {
      for (std::size_t i = 0; i < text.size();) {
        const CodePoint c = decode_utf8(text.data() + i);
        const auto end = i + static_cast<std::size_t>(c.bytes);
        if (c.value < 0x80 ? c.value >= '0' && c.value <= '9' : is_number(c.value) || is_number_of_unicode_17(c.value))
          visit(i, end);
        i = end;
      }
      return;
    }
    if (kind == Kind::spaces) {
      for (std::size_t i = text.find(' '); i != text.npos;) {
        const std::size_t end = std::min(text.find_first_not_of(' ', i), text.size());
        visit(i, end);
        i = text.find(' ', end);
      }
      return;
    }
    if (kind == Kind::literal) {
      for (std::size_t i = text.find(literal); i != text.npos; i = text.find(literal, i + literal.size()))
        visit(i, i + literal.size());
      return;
    }
    // An empty match right after the last match is skipped, as in the reference implementation's iteration.
    std::size_t from = 0;
    std::size_t last_match_end = text.npos;
    Regex::Match match{};
    while (from <= text.size() && regex->search(text, from, region, param, match)) {
      if (match.begin == match.end && match.end == last_match_end) {
        from += from < text.size() ? static_cast<std::size_t>(decode_utf8(text.data() + from).bytes) : 1;
        continue;
      }
      from = last_match_end = match.end;
      visit(match.begin, match.end);
    }
  }
};

struct SplitScratch::Impl {
  std::vector<Region> regions;  // [stages]: an outer stage's search goes on while an inner one runs
  MatchParam param = new_match_param();
  std::string older;  // the text, with characters that the expressions know
  std::string prefixed;
  std::string prefixed_older;
};

SplitScratch::SplitScratch(std::size_t stages) : impl_(std::make_unique<Impl>()) {
  for (std::size_t i = 0; i < stages; ++i) impl_->regions.push_back(new_region());
}
SplitScratch::~SplitScratch() = default;
SplitScratch::SplitScratch(SplitScratch&&) noexcept = default;
SplitScratch& SplitScratch::operator=(SplitScratch&&) noexcept = default;

Splitter::~Splitter() = default;
Splitter::Splitter(Splitter&&) noexcept = default;
Splitter& Splitter::operator=(Splitter&&) noexcept = default;

namespace {

// The members of a Sequence, or else the one pre-tokenizer itself.
std::vector<JsonPlace> parts_of(const JsonPlace& pre_tokenizer) {
  if (!pre_tokenizer.is_set() || pre_tokenizer.at("type").text() != "Sequence") return {pre_tokenizer};
  const JsonPlace list = pre_tokenizer.at("pretokenizers");
  std::vector<JsonPlace> parts;
  for (std::size_t i = 0; i < list.size(); ++i) parts.push_back(list.at(i));
  return parts;
}

}  // namespace

std::unique_ptr<Splitter::Stage> Splitter::Stage::of_regex(std::string_view pattern, Behavior behavior,
                                                           const std::string& origin) {
  auto stage = std::make_unique<Stage>(Kind::regex, behavior);
  stage->regex = std::make_unique<Regex>(pattern, origin);
  for (const std::string_view mark : {"(?<", "\\A", "\\G", "\\B", "\\K", "\\b", "^"}) {
    // A caret at the head of a class does not look behind.
    for (std::size_t at = pattern.find(mark); at != pattern.npos; at = pattern.find(mark, at + 1))
      stage->looks_behind = stage->looks_behind || mark != "^" || at == 0 || pattern[at - 1] != '[';
  }
  return stage;
}

std::unique_ptr<Splitter::Stage> Splitter::Stage::of_split(const JsonPlace& part, const std::string& origin) {
  const auto behavior = part.at("behavior").named<Behavior>();
  const JsonPlace pattern = part.at("pattern");
  std::unique_ptr<Stage> stage;
  if (pattern.has("Regex")) {
    stage = of_regex(pattern.at("Regex").text(), behavior, origin);
  } else if (pattern.has("String")) {
    stage = std::make_unique<Stage>(Kind::literal, behavior);
    stage->literal = pattern.at("String").text();
    if (stage->literal.empty()) pattern.refuse("is the empty string");
  } else {
    pattern.refuse("has neither a Regex nor a String");
  }
  stage->is_inverted = part.at("invert").boolean_or(false);
  return stage;
}

bool has_metaspace(const JsonPlace& pre_tokenizer) {
  if (!pre_tokenizer.is_set()) return false;
  return std::ranges::any_of(parts_of(pre_tokenizer),
                             [](const JsonPlace& part) { return part.at("type").text() == "Metaspace"; });
}

// Older files have "add_prefix_space".
void Splitter::add_metaspace(const JsonPlace& part) {
  if (const JsonPlace mark = part.at("replacement"); mark.text() != kSpaceMark)
    mark.refuse(fmt::format("is {}; \"\u2581\" is allowed", shown(mark.json())));
  const JsonPlace scheme = part.at("prepend_scheme");
  const std::string said = scheme.is_set() ? scheme.text() : part.at("add_prefix_space").boolean_or(true) ? "always" : "never";
  if (said != "always" && said != "first" && said != "never")
    scheme.refuse(fmt::format("is {}; always, first and never are allowed", shown(scheme.json())));
  if (said != "never") {
    stages_.push_back(std::make_unique<Stage>(Stage::Kind::prefix_space, Behavior::isolated));
    stages_.back()->only_at_beginning = said == "first";
  }
  if (part.at("split").boolean_or(true)) {
    stages_.push_back(std::make_unique<Stage>(Stage::Kind::literal, Behavior::merged_with_next));
    stages_.back()->literal = " ";
  }
}

Splitter::Splitter(const JsonPlace& pre_tokenizer, bool marks_spaces, const std::string& origin) {
  if (marks_spaces) {
    if (!pre_tokenizer.is_set()) return;
    for (const JsonPlace& part : parts_of(pre_tokenizer)) {
      const JsonPlace type = part.at("type");
      if (type.text() == "Metaspace") {
        add_metaspace(part);
      } else if (type.text() != "Split" || !part.at("pattern").has("String") || part.at("pattern").at("String").text() != " ") {
        type.refuse(
            fmt::format("is {}; where spaces are marked, Metaspace, a Split at \" \", a Sequence of them and null are allowed",
                        shown(type.json())));
      }  // A Split at spaces finds nothing: all spaces are marked.
    }
    return;
  }
  bool is_byte_level = false;
  for (const JsonPlace& part : parts_of(pre_tokenizer)) {
    const JsonPlace type = part.at("type");
    if (is_byte_level) type.refuse(fmt::format("is {} after ByteLevel, which comes last", shown(type.json())));
    if (type.text() == "Split") {
      stages_.push_back(Stage::of_split(part, origin));
    } else if (type.text() == "Digits") {
      const bool each = part.at("individual_digits").boolean_or(false);
      stages_.push_back(std::make_unique<Stage>(Stage::Kind::digits, each ? Behavior::isolated : Behavior::contiguous));
    } else if (type.text() == "ByteLevel") {
      is_byte_level = true;
      if (part.at("add_prefix_space").boolean_or(true))
        stages_.push_back(std::make_unique<Stage>(Stage::Kind::prefix_space, Behavior::isolated));
      if (part.at("use_regex").boolean_or(true))
        stages_.push_back(Stage::of_regex(kByteLevelPattern, Behavior::isolated, origin));
    } else {
      type.refuse(fmt::format("is {}; Split, Digits, ByteLevel and a Sequence of them are allowed", shown(type.json())), kKinds);
    }
  }
  if (!is_byte_level) pre_tokenizer.refuse("has no ByteLevel", kKinds);
  safe_cuts_.after_lines = safe_cuts_.before_spaces = finds_safe_cuts();
}

void Splitter::end_words_before_spaces() {
  stages_.push_back(std::make_unique<Stage>(Stage::Kind::spaces, Behavior::merged_with_next));
  safe_cuts_.before_spaces = true;
}

void Splitter::split(std::string_view text, bool begins, SplitScratch& scratch, TakeWord word) const {
  if (text.size() > kLongestText)
    throw InputError(fmt::format("text of {} bytes without a place to cut it, allowed: at most {}", text.size(), kLongestText));
  if (text.empty()) return;
  std::string& older = scratch.impl_->older;
  run(0, {text, replace_newer_characters(text, older) ? std::string_view(older) : text, 0, begins}, scratch, word);
}

void Splitter::run(std::size_t index, const Part& part, SplitScratch& scratch, TakeWord word) const {
  if (index == stages_.size()) {
    word(part.text, part.at);
    return;
  }
  const Stage& stage = *stages_[index];
  const auto [text, older, at, begins] = part;
  if (stage.kind == Stage::Kind::prefix_space) {
    if (text.starts_with(' ') || (stage.only_at_beginning && !begins)) {
      run(index + 1, part, scratch, word);
    } else {
      const auto prefix = [](std::string& prefixed, std::string_view rest) {
        prefixed.assign(1, ' ');
        prefixed.append(rest);
        return std::string_view(prefixed);
      };
      const std::string_view prefixed = prefix(scratch.impl_->prefixed, text);
      const bool is_same = older.data() == text.data();
      run(index + 1, {prefixed, is_same ? prefixed : prefix(scratch.impl_->prefixed_older, older), at - 1, begins}, scratch,
          word);
    }
    return;
  }
  const bool is_last = index + 1 == stages_.size();
  const auto next = [&](std::size_t begin, std::size_t end) {
    const std::string_view inner = part.text.substr(begin, end - begin);
    const std::ptrdiff_t from = part.at + static_cast<std::ptrdiff_t>(begin);
    if (is_last)
      word(inner, from);
    else
      run(index + 1, {inner, part.older.substr(begin, end - begin), from, part.begins}, scratch, word);
  };
  Joiner joiner(stage.behavior, next);
  std::size_t done = 0;
  stage.for_each_match(older, scratch.impl_->regions[index].get(), scratch.impl_->param.get(),
                       [&](std::size_t begin, std::size_t end) {
                         if (begin != done) joiner.add(done, begin, stage.is_inverted);
                         joiner.add(begin, end, !stage.is_inverted);
                         done = end;
                       });
  if (done != text.size()) joiner.add(done, text.size(), stage.is_inverted);
  joiner.flush();
}

bool Splitter::finds_safe_cuts() const {
  for (const auto& stage : stages_) {
    if (stage->looks_behind || stage->kind == Stage::Kind::prefix_space) return false;
  }
  // A stage that joins words across a cut, or a class that spans the cut, shows in one of these pairs.
  constexpr std::array<std::string_view, 14> kBefore = {
      "a",    "ab", "B1",    "7",   "x.",  "x .",          "\xc3\xa9",
      "say'", "(",  " - )]", "\t{", "$ =", "\xe4\xbd\xa0", "\xe4\xbd\xa0\xe3\x80\x82"};
  constexpr std::array<std::string_view, 6> kAfter = {"a", "Bc d", "s", "ll be", "\xc3\xa9t", "\xe4\xbd\xa0"};
  SplitScratch own = scratch();
  const auto words_of = [&](const std::string& text, std::vector<std::string>& words) {
    split(text, true, own, [&](std::string_view word, std::ptrdiff_t) { words.emplace_back(word); });
  };
  for (const std::string_view before : kBefore) {
    for (const std::string_view after : kAfter) {
      for (const char separator : {'\n', ' '}) {
        std::string first(before);
        std::string second(after);
        if (separator == '\n')
          first += '\n';
        else if (is_letter(decode_last_utf8(before).value))
          second.insert(0, 1, ' ');
        else
          continue;
        std::vector<std::string> whole;
        std::vector<std::string> parts;
        words_of(first + second, whole);
        words_of(first, parts);
        words_of(second, parts);
        if (whole != parts) return false;
      }
    }
  }
  return true;
}

std::size_t last_safe_cut(std::string_view text, SafeCuts cuts) {
  if (!cuts.after_lines && !cuts.before_spaces) return text.npos;
  for (std::size_t i = text.size(); i-- > 1;) {
    const std::string_view before = text.substr(0, i);
    if (cuts.after_lines && text[i] == '\n' && i + 1 < text.size()) {
      if (is_letter(decode_utf8(text.data() + i + 1).value) && is_graphic(decode_last_utf8(before).value)) return i + 1;
    } else if (cuts.before_spaces && text[i] == ' ' && i + 1 < text.size()) {
      if (is_letter(decode_utf8(text.data() + i + 1).value) && is_letter(decode_last_utf8(before).value)) return i;
    }
  }
  return text.npos;
}

}  // namespace spillway
