// Text that a model goes on with: prompts in, text out as it comes. What `spillway generate` does.
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
  std::optional<std::int64_t> step;  // of --load; the newest where not given
  std::vector<std::string> prompts;
  std::int64_t max_new_tokens = 128;
  SamplingOptions sampling;
};

enum class StopReason : std::uint8_t { end_of_text, length, context, interrupted };
std::string_view name_of(StopReason reason);

struct GeneratedText {
  std::vector<std::int32_t> tokens;  // without the one that ended the text
  std::string text;
  StopReason stopped = StopReason::length;
  std::int64_t prompt_tokens = 0;
  double prompt_s = 0, tokens_s = 0;  // to the first token; for those after it
};

class Generation {
 public:
  // Everything that can be wrong with the prompts is said before the model is loaded. InputError, BudgetError, IoError.
  explicit Generation(const GenerationRequest& request);
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  // `on_text` gets whole characters as they come.
  GeneratedText run(std::size_t prompt, const std::function<void(std::string_view)>& on_text);

  const CachedModel& model() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A line for people.
std::string generation_summary(const GeneratedText& text, const CachedModel& model);
// One JSON object, on a line.
std::string generation_json(const std::string& prompt, const GeneratedText& text);

}  // namespace spillway
