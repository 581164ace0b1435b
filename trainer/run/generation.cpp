#include "trainer/run/generation.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "files/json_text.h"
#include "memory/base/error.h"
#include "trainer/host/interrupt.h"
#include "trainer/keep/run_files.h"
#include "trainer/options/model_of.h"
#include "trainer/run/chat_prompt.h"
#include "trainer/run/stop_tokens.h"
#include "trainer/text/text_codec.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

std::vector<std::vector<std::int32_t>> encoded(const GenerationRequest& request, const TextCodec& codec,
                                               const ModelConfig& config) {
  const std::vector<std::string>& prompts = request.prompts;
  std::vector<std::vector<std::int32_t>> ids;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const std::string which = prompts.size() == 1 ? "the prompt" : fmt::format("prompt {}", i + 1);
    try {
      ids.push_back(request.is_chat ? chat_prompt(request.options, codec, prompts[i]) : codec.prompt(prompts[i]));
    } catch (const InputError& error) {
      throw InputError(fmt::format("--prompt: {}: {}", which, error.what()), error.help());
    }
    const auto length = static_cast<std::int64_t>(ids.back().size());
    if (length == 0) throw InputError(fmt::format("--prompt: {} has no tokens", which), "give some text to go on from");
    if (length >= config.max_positions) {
      throw InputError(fmt::format("--prompt: {} has {} tokens, allowed: at most {}, one less than the {} positions of the model",
                                   which, length, config.max_positions - 1, config.max_positions));
    }
  }
  return ids;
}

}  // namespace

std::string_view name_of(StopReason reason) {
  switch (reason) {
    case StopReason::end_of_text: return "end of text";
    case StopReason::length: return "--max-new-tokens";
    case StopReason::context: return "end of the model's context";
    case StopReason::interrupted: return "interrupted";
  }
  return "";
}

struct Generation::Impl {
  explicit Impl(const GenerationRequest& request)
      : config(model_of(request.options).config),
        codec(tokenizer_of(request.options), config.vocab),
        prompts(encoded(request, codec, config)),
        ends(stop_tokens(request.options.model, config, codec)),
        most(request.max_new_tokens),
        sampler(request.sampling) {
    refuse_other_model(request.options, config);
    std::size_t longest = 0;
    for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
    const auto length = static_cast<std::int64_t>(longest);
    // The last token is never read back, so it needs no position.
    model.emplace(CachedModelRequest{.options = request.options,
                                     .step = request.step,
                                     .context = std::min(config.max_positions, length + most - 1),
                                     .longest_prompt = length});
  }

  std::int32_t pick(std::span<const float> logits, std::size_t prompt) {
    const auto bad = std::ranges::find_if(logits, [](float value) { return !std::isfinite(value); });
    if (bad != logits.end()) {
      throw InputError(fmt::format("the logit of token {} is {}: the weights of {} overflow on this text", bad - logits.begin(),
                                   *bad, model->name()),
                       "--dtype fp32 may do");
    }
    return sampler.pick(logits, prompt, static_cast<std::uint64_t>(model->position()));
  }

  ModelConfig config;
  TextCodec codec;
  std::vector<std::vector<std::int32_t>> prompts;
  std::set<std::int32_t> ends;
  std::int64_t most;
  Sampler sampler;
  std::optional<CachedModel> model;
  InterruptHandler interrupt;
};

Generation::Generation(const GenerationRequest& request) : impl_(std::make_unique<Impl>(request)) {}
Generation::~Generation() = default;

const CachedModel& Generation::model() const noexcept { return *impl_->model; }

GeneratedText Generation::run(std::size_t index, const std::function<void(std::string_view)>& on_text) {
  Impl& impl = *impl_;
  const std::vector<std::int32_t>& prompt = impl.prompts.at(index);
  GeneratedText result;
  result.prompt_tokens = static_cast<std::int64_t>(prompt.size());
  const std::int64_t room = impl.config.max_positions - result.prompt_tokens;
  Utf8Stream characters;
  const auto give = [&](const std::string& text) {
    if (text.empty()) return;
    result.text += text;
    on_text(text);
  };
  const Clock::time_point begin = Clock::now();
  std::span<const float> logits = impl.model->begin(prompt);
  result.prompt_s = seconds_since(begin);
  const Clock::time_point first = Clock::now();
  while (true) {
    const std::int32_t token = impl.pick(logits, index);
    if (impl.ends.contains(token)) {
      result.stopped = StopReason::end_of_text;
      break;
    }
    result.tokens.push_back(token);
    give(characters.add(impl.codec.bytes_of(token)));
    const auto count = static_cast<std::int64_t>(result.tokens.size());
    if (count == impl.most || count == room || impl.interrupt.requested()) {
      result.stopped = impl.interrupt.requested() ? StopReason::interrupted
                       : count == impl.most       ? StopReason::length
                                                  : StopReason::context;
      break;
    }
    logits = impl.model->next(token);
  }
  result.tokens_s = seconds_since(first);
  give(characters.finish());
  return result;
}

std::string generation_summary(const GeneratedText& text, const CachedModel& model) {
  const auto per_second = [](std::int64_t count, double seconds) {
    return seconds > 0 ? static_cast<double>(count) / seconds : 0.0;
  };
  const CachedModel::Traffic traffic = model.traffic();
  const auto count = static_cast<std::int64_t>(text.tokens.size());
  // The first token came with the prompt.
  const std::int64_t read = text.stopped == StopReason::end_of_text ? count : count - 1;
  std::string line =
      fmt::format("{}: {} of prompt in {:.2f} s ({:.0f} tokens/s)", model.name(), counted(text.prompt_tokens, "token"),
                  text.prompt_s, per_second(text.prompt_tokens, text.prompt_s));
  const double rate = per_second(read, text.tokens_s);
  if (read > 0)
    line +=
        fmt::format("; then {:.2f} tokens/s, {:.2f} GB/s of weights", rate, rate * static_cast<double>(traffic.weights) / 1e9);
  if (read > 0 && traffic.nvme > 0)
    line += fmt::format(", {:.2f} GB/s from NVMe", rate * static_cast<double>(traffic.nvme) / 1e9);
  return line + fmt::format("; {} of device memory; ended by {}", rounded_size(traffic.device), name_of(text.stopped));
}

std::string generation_json(const std::string& prompt, const GeneratedText& text) {
  const nlohmann::ordered_json json = {{"prompt", prompt},
                                       {"text", text.text},
                                       {"tokens", text.tokens},
                                       {"prompt_tokens", text.prompt_tokens},
                                       {"stopped", name_of(text.stopped)},
                                       {"prompt_s", text.prompt_s},
                                       {"tokens_s", text.tokens_s}};
  return json_text(json, -1);
}

}  // namespace spillway
