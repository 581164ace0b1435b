// A saved plan's choices, and the plan that they make, which must hold together whatever they are.
#include <nlohmann/json.hpp>

#include "files/strict_json.h"
#include "memory/passes/packing.h"
#include "memory/passes/schedule.h"
#include "memory/passes/validate.h"
#include "memory/passes/waits.h"
#include "tests/fuzz/fuzz.h"
#include "tests/memory/toy_graph.h"
#include "trainer/plan/plan_choices.h"

namespace {

using namespace spillway;

const UnitGraph& graph(bool fused) {
  static const UnitGraph tiled_graph = toy_graph({.layers = 2, .vocabulary_tiles = 1}),
                         fused_graph = toy_graph({.layers = 2, .vocabulary_tiles = 1, .fused = true});
  return fused ? fused_graph : tiled_graph;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  refuse_or_accept([&] {
    const GraphCandidates graphs{&graph(false), &graph(true)};
    const Choices choices =
        choices_of(parse_strict_json(std::string(text_of(data, size)), "plan.json", 1 << 16), "plan.json", graphs);
    // More micro-batches make the same plan longer.
    if (choices.micro_batches > 3 || choices.ahead > kMiB) return;
    const UnitGraph& units = graph(choices.graph != 0);
    Plan plan = build_schedule(units, choices);
    pack(plan);
    derive_waits(plan);
    validate(plan, units);
  });
  return 0;
}
