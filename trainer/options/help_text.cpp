#include "trainer/options/help_text.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <utility>

#include "trainer/words/quantity.h"

namespace spillway {
namespace {

constexpr int kTexts = 30;  // columns before what a flag means

// "--load DIR, or DIR alone", "-h, --help"
std::string left_of(const CLI::Option& option) {
  std::string left;
  for (const std::string& name : option.get_snames()) left += fmt::format("{}-{}", left.empty() ? "" : ", ", name);
  for (const std::string& name : option.get_lnames()) left += fmt::format("{}--{}", left.empty() ? "" : ", ", name);
  const std::string value = option.get_type_size() == 0 ? "" : option.get_type_name();
  if (!value.empty()) left += " " + value;
  if (!option.get_positional() || value.empty()) return left;
  return fmt::format("{}, or {} alone", left, value);
}

std::string line_of(const CLI::Option& option) {
  std::string line = "  " + left_of(option);
  const std::string& text = option.get_description();
  if (text.empty()) return line + "\n";
  if (line.size() + 2 > kTexts) line += fmt::format("\n{:{}}", "", kTexts);
  return fmt::format("{:<{}}{}\n", line, kTexts, wrapped(text, kTexts, kHelpColumns));
}

}  // namespace

std::string help_text(const CLI::App& app) {
  std::string text = fmt::format("{}\n\nusage: {} [flags]\n", wrapped(app.get_description(), 0, kHelpColumns), app.get_name());
  for (const std::string& group : app.get_groups()) {
    const auto options = app.get_options([&](const CLI::Option* option) { return option->get_group() == group; });
    if (options.empty() || group.empty()) continue;
    text += fmt::format("\n{}\n", group);
    for (const CLI::Option* option : options) text += line_of(*option);
  }
  return app.get_footer().empty() ? text : fmt::format("{}\n{}", text, app.get_footer());
}

std::string words_of_plans() {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"step", "one update of the weights, by a global batch: so many micro-batches, whose gradients are summed"},
      {"unit",
       "a part of the model that is fetched and run as one: the embedding, the attention or the MLP of a layer, the head"},
      {"block", "weights that are moved and updated as one, with their gradient and optimizer state; a unit has one or more"},
      {"tier",
       "where bytes rest: device (what computes; with --device cpu a part of RAM), host, nvme (the directories of --nvme)"},
      {"lane",
       "what does one thing at a time: compute, nvme_read, nvme_write, update (the optimizer), commit (makes steps durable), "
       "upload and download (between a device with memory of its own and its host), network (ranks). No order of the work "
       "makes a step shorter than what one lane has to do in it: that lane binds"},
      {"order",
       "horizontal: each micro-batch goes through all units before the next, and weights are fetched for each of them; "
       "vertical: all micro-batches go through a unit before the next unit, weights are fetched once, and what units "
       "hand on waits"},
      {"update",
       "after: when the backward is over; in-backward: as soon as a gradient is complete; in-next-forward: just "
       "before the weights are used again, when the norm that clipping needs is known"},
      {"kept", "activations are kept from forward to backward, recomputed there, or spilled to nvme"},
  };
  std::string text = "Words of a plan (none of these choices changes the result by a bit)\n";
  for (const auto& [word, meaning] : kWords) text += fmt::format("  {:<10}{}\n", word, wrapped(meaning, 12, kHelpColumns));
  return text;
}

}  // namespace spillway
