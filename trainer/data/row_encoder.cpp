#include "trainer/data/row_encoder.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "memory/base/error.h"

namespace spillway {
namespace {

using Ids = std::vector<std::int32_t>;

// Returns true if `ids` from `first` on begin with these tokens.
bool begins_with(const Ids& ids, std::size_t first, std::span<const std::int32_t> tokens) {
  return ids.size() - first >= tokens.size() &&
         std::equal(tokens.begin(), tokens.end(), ids.begin() + static_cast<std::ptrdiff_t>(first));
}

bool lies_in(const LossSpan& span, std::size_t begin, std::size_t end) {
  if (begin == end) return begin >= span.begin && begin < span.end;
  return begin < span.end && end > span.begin && (!span.whole_tokens || end <= span.end);
}

}  // namespace

TokenEncoder& RowEncoder::encoder(const std::string& file) {
  if (!encoder_) encoder_.emplace(tools_->tokenizer(file).tokenizer);
  return *encoder_;
}

EncodedRow RowEncoder::encode(std::string_view line, const std::string& file, Ids& tokens, Ids& targets) {
  const std::size_t first = tokens.size();
  EncodedRow row;
  try {
    const std::string problem = read_row(line, limits_, content_);
    if (!problem.empty()) throw InputError(problem);
    switch (content_.shape) {
      case RowShape::ids: add_ids(tokens, targets); break;
      case RowShape::text:
      case RowShape::completion: add_text(file, tokens, targets); break;
      case RowShape::conversation: add_conversation(file, tokens, targets); break;
    }
    const std::size_t kept = tokens.size() - first;
    row.tokens = content_.shape == RowShape::ids ? content_.ids_found : static_cast<std::int64_t>(kept);
    const auto beyond = std::find_if(tokens.begin() + static_cast<std::ptrdiff_t>(first), tokens.end(),
                                     [&](std::int32_t id) { return id >= rules_.vocabulary; });
    if (beyond != tokens.end()) {
      throw InputError(fmt::format("found {} {} in \"{}\", allowed: below {}, the vocabulary of the model",
                                   tools_->kind() == TextKind::bytes ? "byte" : "token", *beyond, content_.key,
                                   rules_.vocabulary));
    }
    if (row.tokens == 0 && rules_.needs_loss)
      throw InputError(fmt::format("found {} \"{}\", allowed: at least one token",
                                   content_.shape == RowShape::text ? "an empty" : "no text in", content_.key));
    row.is_cut = row.tokens > rules_.longest && rules_.long_rows != LongRows::keep;
    if (row.is_cut && rules_.long_rows == LongRows::refuse) {
      throw InputError(fmt::format("found {} tokens, allowed: at most {} (--seq-length + 1)", row.tokens, rules_.longest),
                       "lengthen --seq-length, cut such rows with --truncate, or pack them with --packing --split-rows");
    }
    if (row.is_cut) {
      tokens.resize(first + static_cast<std::size_t>(rules_.longest));
      targets.resize(tokens.size());
    }
    const auto trained = [&] { return targets.begin() + static_cast<std::ptrdiff_t>(std::min(first + 1, targets.size())); };
    row.with_loss = (targets.end() - trained()) - std::count(trained(), targets.end(), kNoLoss);
    if (row.with_loss == 0 && rules_.needs_loss) {
      throw InputError(row.is_cut        ? fmt::format("none of its first {} tokens (--seq-length + 1) has loss", rules_.longest)
                       : row.tokens == 1 ? "found one token, which follows no other, so that nothing has loss"
                                         : "none of its tokens has loss",
                       row.is_cut ? "lengthen --seq-length, or leave such rows out with --skip-bad-lines" : "");
    }
  } catch (...) {
    tokens.resize(first);
    targets.resize(first);
    throw;
  }
  return row;
}

void RowEncoder::add_ids(Ids& tokens, Ids& targets) const {
  tokens.insert(tokens.end(), content_.ids.begin(), content_.ids.end());
  const Ids& labels = content_.has_labels ? content_.labels : content_.ids;
  targets.insert(targets.end(), labels.begin(), labels.end());
}

void RowEncoder::add_text(const std::string& file, Ids& tokens, Ids& targets) {
  const std::size_t first = tokens.size();
  const std::string& text = content_.text;
  const bool has_prompt = content_.shape == RowShape::completion && rules_.train_on != TrainOn::all;
  const LossSpan span{has_prompt ? content_.completion_begin : 0, text.size()};
  if (tools_->kind() == TextKind::none) {
    throw InputError(
        fmt::format("found \"{}\" without --tokenizer bytes or PATH, and the model has no tokenizer.json, allowed: "
                    "either, or rows of \"input_ids\"",
                    content_.key));
  }
  if (tools_->kind() == TextKind::bytes) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      tokens.push_back(static_cast<unsigned char>(text[i]));
      targets.push_back(i >= span.begin ? tokens.back() : kNoLoss);
    }
    return;
  }
  const LoadedTokenizer& loaded = tools_->tokenizer(file);
  const bool has_ends = rules_.text_ends == TextEnds::both;
  if (has_prompt) {
    ends_.clear();
    encoder(file).encode(text, tokens, ends_);
    add_targets(text, {span}, loaded, tokens, first, targets);
  } else {
    encoder(file).encode(text, tokens);
    targets.insert(targets.end(), tokens.begin() + static_cast<std::ptrdiff_t>(first), tokens.end());
  }
  if (!has_ends || text.empty()) return;
  const std::span<const std::int32_t> leading = loaded.tokenizer.leading_tokens();
  if (!begins_with(tokens, first, leading)) {
    tokens.insert(tokens.begin() + static_cast<std::ptrdiff_t>(first), leading.begin(), leading.end());
    targets.insert(targets.begin() + static_cast<std::ptrdiff_t>(first), leading.size(), kNoLoss);
    if (!has_prompt) std::ranges::copy(leading, targets.begin() + static_cast<std::ptrdiff_t>(first));
  }
  if (!loaded.end || tokens.back() == *loaded.end) return;
  tokens.push_back(*loaded.end);
  targets.push_back(*loaded.end);
}

void RowEncoder::add_conversation(const std::string& file, Ids& tokens, Ids& targets) {
  if (tools_->kind() != TextKind::tokenizer) {
    throw InputError(
        fmt::format("found \"{}\" without a tokenizer.json, with which their chat template comes, allowed: "
                    "--tokenizer PATH, or rows of \"text\" or \"input_ids\"",
                    content_.key));
  }
  const std::size_t first = tokens.size();
  const Conversation& conversation = content_.conversation;
  const TextWithLoss made =
      rules_.needs_loss
          ? text_with_loss(tools_->chat(), conversation, rules_.train_on)
          : TextWithLoss{
                tools_->chat().render_with_spans(conversation.messages, conversation.tools, GenerationPrompt::leave_out).text,
                {}};
  const bool is_all = made.spans.size() == 1 && made.spans[0].begin == 0 && made.spans[0].end == made.text.size();
  if (is_all || !rules_.needs_loss) {
    encoder(file).encode(made.text, tokens);
    targets.insert(targets.end(), tokens.begin() + static_cast<std::ptrdiff_t>(first), tokens.end());
    return;
  }
  ends_.clear();
  encoder(file).encode(made.text, tokens, ends_);
  add_targets(made.text, made.spans, tools_->tokenizer(file), tokens, first, targets);
}

// A token has loss if any of its bytes lies in a span, and so has the end token right after one, even if a tag leaves it out.
void RowEncoder::add_targets(std::string_view text, const std::vector<LossSpan>& spans, const LoadedTokenizer& loaded,
                             const Ids& tokens, std::size_t first, Ids& targets) const {
  constexpr std::string_view kSpace = " \t\r\n";
  const auto is_end = [&](std::int32_t id) { return std::ranges::find(loaded.turn_ends, id) != loaded.turn_ends.end(); };
  const LossSpan *ended = nullptr, *closed = nullptr;  // the spans whose end token has come, and behind which other text has come
  auto span = spans.begin();
  std::size_t begin = 0;
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    const std::size_t end = ends_[i];
    while (span != spans.end() && span->end < begin) ++span;
    const std::int32_t id = tokens[first + i];
    bool has_loss = false;
    for (auto near = span; near != spans.end() && near->begin <= end && !has_loss; ++near) {
      const bool is_space = text.substr(begin, end - begin).find_first_not_of(kSpace) == text.npos;
      if (ended == &*near && !is_space && !is_end(id)) closed = ended;
      has_loss = (lies_in(*near, begin, end) && closed != &*near) || (near->end == begin && is_end(id));
      if (has_loss && begin >= near->said_end && is_end(id)) ended = &*near;
    }
    targets.push_back(has_loss ? id : kNoLoss);
    begin = end;
  }
}

}  // namespace spillway
