#include "trainer/options/help_text.h"

#include <fmt/core.h>

#include <string_view>
#include <utility>

#include "trainer/words/quantity.h"

namespace spillway {
namespace {

constexpr int kTexts = 30;  // columns before the meaning of a flag

std::string line_of(const HelpOfFlag& flag) {
  std::string line = "  " + flag.typed;
  if (flag.means.empty()) return line + "\n";
  if (line.size() + 2 > kTexts) line += fmt::format("\n{:{}}", "", kTexts);
  return fmt::format("{:<{}}{}\n", line, kTexts, wrapped(flag.means, kTexts, kHelpColumns));
}

}  // namespace

std::string help_text(const CommandHelp& help) {
  std::string text = fmt::format("{}\n\nusage: {} [flags]\n", wrapped(help.description, 0, kHelpColumns), help.command);
  for (const HelpGroup& group : help.groups) {
    text += fmt::format("\n{}\n", group.heading);
    for (const HelpOfFlag& flag : group.flags) text += line_of(flag);
  }
  return help.footer.empty() ? text : fmt::format("{}\n{}", text, help.footer);
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
      {"kept", "activations are kept from forward to backward, recomputed there, or spilled to a tier below"},
  };
  std::string text = "Words of a plan (none of these choices changes the result by a bit)\n";
  for (const auto& [word, meaning] : kWords) text += fmt::format("  {:<10}{}\n", word, wrapped(meaning, 12, kHelpColumns));
  return text;
}

}  // namespace spillway
