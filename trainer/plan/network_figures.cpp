#include "trainer/plan/network_figures.h"

#include <fmt/core.h>

#include "trainer/words/quantity.h"
#include "trainer/words/size.h"

namespace spillway {

// With R ranks in groups of N, and P parameters: a gather sends P (N - 1) elements in each group, a sum to parts as many and,
// over C = R / N copies, 2 P (C - 1) more; a sum that all keep 2 P (R - 1).
NetworkFigures network_figures(const Plan& plan, const UnitGraph& graph) {
  const Sharding& sharding = plan.choices.sharding;
  const Bytes ranks = sharding.ranks, group = sharding.group, copies = sharding.copies();
  NetworkFigures figures;
  for (const Op& op : plan.step.ops) {
    if (op.lane != Lane::network) continue;
    const int times = times_in(op.when, turns_of(plan.choices));
    if (op.block < 0) {
      figures.words += times * ranks * op.bytes;
      continue;
    }
    const Bytes parameters = graph.blocks[static_cast<std::size_t>(op.block)].elements;
    if (op.kind == OpKind::gather) {
      const Bytes each = plan.blocks[static_cast<std::size_t>(op.block)].weight().each();
      figures.gathers += times * each * parameters * copies * (group - 1);
    } else {
      const Bytes times_sent = sharding.shards_optimizer() ? copies * (group - 1) + 2 * (copies - 1) : 2 * (ranks - 1);
      figures.sums += times * static_cast<Bytes>(sizeof(float)) * parameters * times_sent;
    }
  }
  return figures;
}

std::string network_in_words(const NetworkFigures& figures) {
  std::string text = fmt::format("a step sends {}: {} of gradients", rounded_size(figures.all()), rounded_size(figures.sums));
  if (figures.gathers > 0) text += fmt::format(", {} of weights", rounded_size(figures.gathers));
  return text + fmt::format(", {} of control words", rounded_size(figures.words));
}

}  // namespace spillway
