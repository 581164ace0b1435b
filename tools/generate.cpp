// The command `spillway generate`: continues text with a model or a run.
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "memory/base/error.h"
#include "tools/command_opening.h"
#include "tools/commands.h"
#include "tools/standard_output.h"
#include "trainer/host/interrupt.h"
#include "trainer/keep/evaluations.h"
#include "trainer/options/command_line.h"
#include "trainer/options/options.h"
#include "trainer/options/resolve_options.h"
#include "trainer/options/validate_options.h"
#include "trainer/run/generation.h"
#include "trainer/run/missing_weights.h"

namespace spillway {
namespace {

constexpr std::size_t kLargestPrompt = 64 << 20;  // bytes: more than any model's context

struct GenerateFlags {
  RawFlags run;  // the flags that train has, too
  std::string step;
  std::vector<std::string> prompts;
  std::string prompt_file;
  bool is_chat = false;
  std::int64_t max_new_tokens = 128;
  std::optional<double> temperature;
  std::int64_t top_k = 0;
  double top_p = 1;
  std::string format = "text";
};

// The text of a file or, for "-", of standard input. A newline at its end is not part of the prompt.
std::string prompt_from(const std::string& path) {
  std::FILE* const file = path == "-" ? stdin : std::fopen(path.c_str(), "r");
  if (file == nullptr) throw InputError(fmt::format("--prompt-file: {} cannot be opened: {}", path, std::strerror(errno)));
  std::string text;
  char block[1 << 16];
  std::size_t count = 0;
  while (text.size() <= kLargestPrompt && (count = std::fread(block, 1, sizeof block, file)) > 0) text.append(block, count);
  const bool failed = std::ferror(file) != 0;
  if (file != stdin) std::fclose(file);
  if (failed) throw IoError(fmt::format("--prompt-file: reading {} failed: {}", path, std::strerror(errno)));
  if (text.size() > kLargestPrompt)
    throw InputError(fmt::format("--prompt-file: {} is larger than {} MiB, which no model reads", path, kLargestPrompt >> 20));
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

void check(const GenerateFlags& flags) {
  if (flags.max_new_tokens < 1 || flags.max_new_tokens > (std::int64_t{1} << 30)) {
    throw InputError(fmt::format("--max-new-tokens: found {}, allowed: 1 or more", flags.max_new_tokens));
  }
  if (flags.temperature && !(*flags.temperature >= 0 && *flags.temperature <= 1e6)) {
    throw InputError(fmt::format("--temperature: found {}, allowed: 0 (greedy) or more", *flags.temperature));
  }
  if (flags.top_k < 0) throw InputError(fmt::format("--top-k: found {}, allowed: 0 (all) or more", flags.top_k));
  if (!(flags.top_p > 0 && flags.top_p <= 1))
    throw InputError(fmt::format("--top-p: found {}, allowed: above 0, up to 1", flags.top_p));
  if (flags.format != "text" && flags.format != "jsonl")
    throw InputError(fmt::format("--format: found {}, allowed: text, jsonl", flags.format));
  if (flags.prompts.empty() && flags.prompt_file.empty())
    throw InputError("--prompt: not given", "give it a text, or --prompt-file FILE (- for the standard input)");
}

SamplingOptions sampling_of(const GenerateFlags& flags, std::uint64_t seed) {
  SamplingOptions sampling{.top_k = flags.top_k, .top_p = flags.top_p, .seed = seed};
  const bool samples = flags.top_k > 0 || flags.top_p < 1;
  sampling.temperature = flags.temperature.value_or(samples ? 1.0 : 0.0);
  return sampling;
}

// Thrown when nobody reads the output any more.
struct ReaderGone {};

int run(GenerateFlags& flags) {
  check(flags);
  ResolvedOptions resolved = resolve_options(flags.run);
  use_one_rank(resolved.options);
  require_model(resolved.options);
  refuse_catalogue_name(resolved.options);
  settle_device_of(resolved);
  const RunOptions& options = resolved.options;
  if (!flags.prompt_file.empty()) flags.prompts.push_back(prompt_from(flags.prompt_file));
  Generation generation({.options = options,
                         .step = step_asked(flags.step, options.checkpoint.load),
                         .prompts = flags.prompts,
                         .is_chat = flags.is_chat,
                         .max_new_tokens = flags.max_new_tokens,
                         .sampling = sampling_of(flags, options.model.seed)});
  const bool json = flags.format == "jsonl";
  for (std::size_t i = 0; i < flags.prompts.size(); ++i) {
    const GeneratedText text = generation.run(i, [&](std::string_view characters) {
      if (!json && !put(characters)) throw ReaderGone();
    });
    if (!put(json ? generation_json(flags.prompts[i], text) : "\n")) return 0;
    fmt::print(stderr, "{}\n", generation_summary(text, generation.model()));
    if (text.stopped == StopReason::interrupted) return kExitInterrupted;
  }
  return 0;
}

}  // namespace

int generate_command(int argc, const char* const* argv) {
  CommandLine command("spillway generate", "Text that a model or a run goes on with after a prompt.");
  GenerateFlags flags;
  constexpr std::string_view shared[] = {"model",   "adapter", "load",   "tokenizer",     "seed",        "init",
                                         "threads", "dtype",   "device", "device-memory", "host-memory", "nvme"};
  command.add_run_flags(flags.run, shared);
  command.add("--step", flags.step, "N|best",
              "the checkpoint of --load to take (default: the newest); best: of the lowest eval_loss");
  command.add_repeated("--prompt", flags.prompts, "TEXT", "what to go on from; may be given more than once");
  command.add("--prompt-file", flags.prompt_file, "FILE", "a prompt from a file; - for the standard input");
  command.add_switch("--chat", flags.is_chat,
                     "each prompt is what a user says: the model's chat template makes the text to go on from");
  command.add_number("--max-new-tokens", flags.max_new_tokens, "N",
                     "at most so many; the end-of-text token ends a text sooner (128)");
  command.add_number("--temperature", flags.temperature, "T",
                     "0 takes the likeliest token each time (0; with --top-k or --top-p 1)");
  command.add_number("--top-k", flags.top_k, "K", "draw among the K likeliest tokens only; 0: all (0)");
  command.add_number("--top-p", flags.top_p, "P", "draw among the likeliest tokens that together have probability P only (1)");
  command.add("--format", flags.format, "text|jsonl", "text as it comes, or a JSON object a prompt (text)");
  if (help_was_asked(command, argc, argv)) return 0;
  try {
    return run(flags);
  } catch (const ReaderGone&) {
    return 0;
  }
}

}  // namespace spillway
