// Continues prompts with a model and hands out the text as it comes, for `spillway generate`.
// Not here: the forward (cached_model.h), the choice of a token (sampler.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/run/cached_model.h"
#include "trainer/run/sampler.h"

namespace spillway {

struct GenerationRequest {
  const RunOptions& options;         // model, checkpoint, tokenizer, precision, memory; must outlive the generation
  std::optional<std::int64_t> step;  // step of a checkpoint of --load; empty: the newest
  std::vector<std::string> prompts;
  bool is_chat = false;  // each prompt is what a user says: the model's chat template makes the text to go on from
  std::int64_t max_new_tokens = 128;
  SamplingOptions sampling;
};

enum class StopReason : std::uint8_t { end_of_text, length, context, interrupted };
std::string_view name_of(StopReason reason);

struct GeneratedText {
  std::vector<std::int32_t> tokens;  // without the token that ended the text
  std::string text;
  StopReason stopped = StopReason::length;
  std::int64_t prompt_tokens = 0;
  double prompt_s = 0, tokens_s = 0;  // seconds to the first token; seconds for the tokens after it
};

class Generation {
 public:
  // Checks the prompts completely before it loads the model. Throws InputError, BudgetError or IoError.
  explicit Generation(const GenerationRequest& request);
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  // Calls `on_text` with whole characters, as they come.
  GeneratedText run(std::size_t prompt, const std::function<void(std::string_view)>& on_text);

  const CachedModel& model() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// One line for people.
std::string generation_summary(const GeneratedText& text, const CachedModel& model);
// One JSON object, on one line.
std::string generation_json(const std::string& prompt, const GeneratedText& text);

}  // namespace spillway
