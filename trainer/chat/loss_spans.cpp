#include "trainer/chat/loss_spans.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <string_view>
#include <utility>

#include "memory/base/error.h"
#include "trainer/text/resource_error.h"

namespace spillway {
namespace {

using Value = TemplateValue;

constexpr std::array<std::string_view, 6> kRoles = {"system", "developer", "user", "assistant", "tool", "function"};
// Roles that some model makers' templates have beside these.
constexpr std::array<std::string_view, 6> kRarerRoles = {"ipython", "observation", "environment",
                                                         "context", "document",    "control"};

constexpr const char* kOtherChoices = "--train-on last trains on the last turn alone, --train-on all on every token";

const Value* entry_of(const Value& message, const char* key) {
  return message.is(Value::Kind::dictionary) ? find_entry(message, Value(key)) : nullptr;
}

std::string_view text_of(const Value* value) { return value != nullptr && value->is_text() ? value->text() : std::string_view(); }
std::string_view role_of(const Value& message) { return text_of(entry_of(message, "role")); }

bool has_weight(const Value& message, std::size_t i) {
  const Value* const weight = entry_of(message, "weight");
  if (weight == nullptr || weight->is(Value::Kind::none)) return true;
  if (!weight->is_number() || (weight->real() != 0 && weight->real() != 1))
    throw InputError(fmt::format("message {} has the weight {}, allowed: 0 or 1", i, printed(*weight)));
  return weight->real() != 0;
}

void check_role(const Value& message, std::size_t i) {
  const std::string_view role = role_of(message);
  if (role.empty()) return;  // refused when it is rendered
  if (std::ranges::find(kRoles, role) != kRoles.end() || std::ranges::find(kRarerRoles, role) != kRarerRoles.end()) return;
  throw InputError(fmt::format("message {} has the role {}, allowed: {}, {}", i, in_quotes(role), fmt::join(kRoles, ", "),
                               fmt::join(kRarerRoles, ", ")));
}

std::size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

// Length of the longest end of `text` that `other` begins with.
std::size_t longest_end_at_begin(std::string_view text, std::string_view other) {
  // The failure function of `other`, run over `text`.
  std::vector<std::size_t> fail(other.size());
  for (std::size_t i = 1, k = 0; i < other.size(); ++i) {
    while (k > 0 && other[i] != other[k]) k = fail[k - 1];
    if (other[i] == other[k]) ++k;
    fail[i] = k;
  }
  std::size_t k = 0;
  for (const char c : text) {
    if (other.empty()) return 0;
    while (k > 0 && (k == other.size() || other[k] != c)) k = fail[k - 1];
    if (other[k] == c) ++k;
  }
  return k;
}

class SpanFinder {
 public:
  SpanFinder(const ChatTemplate& chat, const Conversation& conversation)
      : chat_(chat),
        conversation_(conversation),
        whole_(chat.render_with_spans(conversation.messages, conversation.tools, GenerationPrompt::leave_out)),
        items_(conversation.messages.sequence().items) {}

  const Value::Items& messages() const { return items_; }

  std::string take_text() { return std::move(whole_.text); }

  // Everything but messages of weight 0.
  std::vector<LossSpan> of_all() {
    std::vector<LossSpan> spans = {{0, whole_.text.size()}};
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (has_weight(items_[i], i)) continue;
      of_turn_.clear();
      const auto begin = prefix_of_whole(i, false), end = prefix_of_whole(i + 1, false);
      if (!begin || !end || *begin < spans.back().begin || *end < *begin) refuse(i);
      spans.back().end = *begin;
      spans.push_back({*end, whole_.text.size()});
    }
    std::erase_if(spans, [](const LossSpan& span) { return span.begin >= span.end; });
    return spans;
  }

  // Of the messages with these indices, which ascend.
  std::vector<LossSpan> of_turns(const std::vector<std::size_t>& turns, bool are_all) {
    if (chat_.has_generation_tags()) return tagged(turns, are_all);
    std::vector<LossSpan> spans;
    for (const std::size_t i : turns) {
      of_turn_.clear();
      const auto span = by_prefixes(i);
      LossSpan found = span ? *span : by_common_prefix(i);
      if (found.begin >= found.end || (!spans.empty() && found.begin < spans.back().end)) refuse(i);
      found.said_end = end_of_said(i, found);
      spans.push_back(found);
    }
    return spans;
  }

 private:
  [[noreturn]] static void refuse(std::size_t i) {
    throw InputError(fmt::format("the chat template writes message {} otherwise when others follow, so that it cannot be told "
                                 "which text has loss",
                                 i),
                     kOtherChoices);
  }

  // The text of the first `count` messages, or null if the template refuses them. Lives until the next turn is looked at.
  const RenderedChat* rendered(std::size_t count, bool prompt) {
    if (count == items_.size() && !prompt) return &whole_;
    for (const Rendering& made : of_turn_) {
      if (made.count == count && made.prompt == prompt) return made.chat ? &*made.chat : nullptr;
    }
    of_turn_.push_back({count, prompt, std::nullopt});
    try {
      of_turn_.back().chat =
          chat_.render_with_spans(Value::list({items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(count)}),
                                  conversation_.tools, prompt ? GenerationPrompt::add : GenerationPrompt::leave_out);
    } catch (const ResourceError&) {
      throw;
    } catch (const InputError&) {
      return nullptr;
    }
    return &*of_turn_.back().chat;
  }
  std::optional<std::size_t> prefix_of_whole(std::size_t count, bool prompt) {
    if (count == items_.size() && !prompt) return whole_.text.size();
    if (count == 0 && !prompt) return 0;
    const RenderedChat* const text = rendered(count, prompt);
    return text != nullptr && whole_.text.starts_with(text->text) ? std::optional(text->text.size()) : std::nullopt;
  }

  std::vector<LossSpan> tagged(const std::vector<std::size_t>& turns, bool are_all) {
    std::vector<LossSpan> spans;
    const auto take = [&](std::size_t first, std::size_t last) {
      for (std::size_t k = first; k < last; ++k) {
        if (const auto& [begin, end] = whole_.generated[k]; begin < end) spans.push_back({begin, end});
      }
    };
    if (are_all) {
      take(0, whole_.generated.size());
      return spans;
    }
    // The blocks of a turn are those that the text up to it has and the text before it lacks.
    for (const std::size_t i : turns) {
      of_turn_.clear();
      const RenderedChat nothing;
      const RenderedChat *const before = i == 0 ? &nothing : rendered(i, false), *const with = rendered(i + 1, false);
      if (before == nullptr || with == nullptr || before->generated.size() > with->generated.size() ||
          with->generated.size() > whole_.generated.size())
        refuse(i);
      take(before->generated.size(), with->generated.size());
    }
    return spans;
  }

  std::optional<LossSpan> by_prefixes(std::size_t i) {
    const auto begin = prefix_of_whole(i, true);
    const auto end = begin ? prefix_of_whole(i + 1, false) : std::nullopt;
    return end && *begin < *end ? std::optional(LossSpan{*begin, *end}) : std::nullopt;
  }

  std::string_view said_by(std::size_t i) const { return trimmed(text_of(entry_of(items_[i], "content"))); }
  std::size_t end_of_said(std::size_t i, const LossSpan& span) const {
    const std::string_view said = said_by(i), text = std::string_view(whole_.text).substr(span.begin, span.end - span.begin);
    const std::size_t at = said.empty() ? text.npos : text.rfind(said);
    return at == text.npos ? at : span.begin + at + said.size();
  }

  LossSpan by_common_prefix(std::size_t i) {
    const RenderedChat* const with = rendered(i + 1, false);
    if (with == nullptr) refuse(i);
    const std::string_view whole = whole_.text, turn = with->text;
    const std::size_t begin = begin_of(i, turn), agreed = common_prefix(turn, whole);
    if (agreed < begin) refuse(i);  // what stands before the turn differs, too
    if (agreed == turn.size()) return {begin, agreed};
    // The turn as the last one, and the whole from where the turn begins in both.
    const std::string_view last = turn.substr(begin), rest = whole.substr(begin);
    const std::string_view said = said_by(i);
    const std::size_t kept = longest_end_at_begin(last, rest);
    if (kept > agreed - begin && (said.empty() ? 2 * kept >= last.size() : ends_as(rest.substr(0, kept), said)))
      return {begin, begin + kept};  // its beginning was dropped
    if (!said.empty() && rest.substr(0, agreed - begin).find(said) != rest.npos) return {begin, agreed, true};  // its end differs
    refuse(i);
  }

  // Where the turn begins in its own text and, if that agrees, in the whole.
  std::size_t begin_of(std::size_t i, std::string_view turn) {
    if (i == 0) return begin_of_first(turn);
    const RenderedChat* const prompt = rendered(i, true);
    if (prompt == nullptr) refuse(i);
    if (turn.starts_with(prompt->text)) return prompt->text.size();
    const RenderedChat* const before = rendered(i, false);
    if (before == nullptr || !turn.starts_with(before->text)) refuse(i);
    return std::max(before->text.size(), common_prefix(prompt->text, turn));
  }
  // Nothing stands before a first message; what another content leaves the same is no part of it.
  std::size_t begin_of_first(std::string_view turn) const {
    const Value* const content = entry_of(items_[0], "content");
    if (content == nullptr || !content->is_text()) refuse(0);
    Value::Entries entries = entries_of(items_[0]);
    for (Value::Entry& entry : entries) {
      if (entry.first.is_text() && entry.first.text() == "content")
        entry.second = Value(trimmed(content->text()).starts_with('x') ? "y" : "x");
    }
    Value::Items one = {Value::dictionary(std::move(entries))};
    return common_prefix(
        chat_.render_with_spans(Value::list(std::move(one)), conversation_.tools, GenerationPrompt::leave_out).text, turn);
  }

  static std::string_view trimmed(std::string_view text) {
    constexpr std::string_view kSpace = " \t\r\n";
    const std::size_t first = text.find_first_not_of(kSpace);
    return first == text.npos ? std::string_view() : text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
  }
  // Returns true if `text` has the last words of what was said.
  static bool ends_as(std::string_view text, std::string_view said) {
    constexpr std::size_t kLastBytes = 16;
    const std::string_view line = said.substr(said.rfind('\n') + 1);  // 0 if there is one line
    return text.find(line.substr(line.size() - std::min(line.size(), kLastBytes))) != text.npos;
  }

  struct Rendering {
    std::size_t count;  // messages
    bool prompt;
    std::optional<RenderedChat> chat;  // nothing: refused
  };

  const ChatTemplate& chat_;
  const Conversation& conversation_;
  RenderedChat whole_;
  const Value::Items& items_;
  std::deque<Rendering> of_turn_;  // of the turn that is looked at; pointers to it stay valid as it grows
};

}  // namespace

TextWithLoss text_with_loss(const ChatTemplate& chat, const Conversation& conversation, TrainOn train_on) {
  SpanFinder finder(chat, conversation);
  const Value::Items& messages = finder.messages();
  TextWithLoss made;
  if (train_on == TrainOn::all) {
    made.spans = finder.of_all();
    made.text = finder.take_text();
    return made;
  }
  std::vector<std::size_t> turns;
  std::size_t said = 0;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    check_role(messages[i], i);
    if (role_of(messages[i]) != "assistant") continue;
    ++said;
    if (train_on == TrainOn::last) turns.clear();
    if (has_weight(messages[i], i) && i >= conversation.trained_from) turns.push_back(i);
  }
  if (turns.empty()) {
    throw InputError(said == 0 ? "found no message of the assistant, so that nothing has loss"
                               : "found only messages of the assistant that have no loss",
                     "--train-on all trains on every token of such rows");
  }
  made.spans = finder.of_turns(turns, turns.size() == said);
  made.text = finder.take_text();
  return made;
}

}  // namespace spillway
