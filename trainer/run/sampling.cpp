#include "trainer/run/sampling.h"

#include <fmt/core.h>

#include <algorithm>

#include "memory/base/error.h"
#include "trainer/data/data.h"
#include "trainer/host/interrupt.h"
#include "trainer/run/chat_prompt.h"
#include "trainer/run/stop_tokens.h"

namespace spillway {

TrainingSamples::TrainingSamples(const RunOptions& options, std::int64_t seq_length, const ModelConfig& config)
    : codec_(tokenizer_of(options), config.vocab),
      prompt_(options.log.sample_chat.empty() ? options.log.sample_prompt : options.log.sample_chat + "\n"),
      tokens_(options.log.sample_chat.empty() ? codec_.prompt(prompt_) : chat_prompt(options, codec_, options.log.sample_chat)),
      ends_(stop_tokens(options.model, config, codec_)),
      seq_length_(seq_length),
      most_tokens_(options.log.sample_tokens) {
  const auto length = static_cast<std::int64_t>(tokens_.size());
  const char* const flag = options.log.sample_chat.empty() ? "--sample-prompt" : "--sample-chat";
  if (length == 0) throw InputError(fmt::format("{}: has no tokens", flag));
  if (length >= seq_length) {
    throw InputError(
        fmt::format("{}: has {} tokens, allowed: at most {}, one less than --seq-length", flag, length, seq_length - 1));
  }
}

std::string TrainingSamples::sample(Executor& executor) const {
  std::vector<std::int32_t> tokens = tokens_;
  Utf8Stream characters;
  std::string text = prompt_;
  const auto most = std::min(static_cast<std::size_t>(seq_length_), tokens_.size() + static_cast<std::size_t>(most_tokens_));
  while (tokens.size() < most && !InterruptHandler::requested()) {
    const std::span<const float> logits =
        executor.logits({.row = static_cast<std::int64_t>(tokens.size()) - 1}, [&](int, const MicroBatchRows& rows) {
          std::ranges::copy(tokens, rows.tokens.begin());
          std::ranges::fill(rows.targets, kNoLoss);
        });
    const auto next = static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
    if (ends_.contains(next)) break;
    tokens.push_back(next);
    text += characters.add(codec_.bytes_of(next));
  }
  return text + characters.finish();
}

}  // namespace spillway
