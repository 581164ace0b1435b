// A layer of a model as a step computes it, for the probe: what whole units do to the rates of their parts, and to lanes
// beside them. Not for anyone but trainer/probe*.cpp. Not here: how it is sampled (probe_measure.h).
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "memory/arena.h"
#include "memory/parallel.h"
#include "models/ops.h"
#include "models/unit_ops.h"

namespace spillway {

// Forward and backward of a layer of a catalogue's model in memory of its own. The pool must outlive it.
class ProbedLayer {
 public:
  ProbedLayer(const ThreadPool& pool, std::string_view model, DType dtype, std::int64_t rows);
  // All passes, once: forwards in their order, then backwards in the reverse.
  void run();
  // Of run().
  Work work() const;
  const UnitGraph& graph() const { return model_.graph; }

 private:
  struct Pass {
    int unit = 0;
    bool forward = true;
  };
  const Unit& unit_of(const Pass& pass) const { return graph().units[static_cast<std::size_t>(pass.unit)]; }
  void run(const Pass& pass);

  ops::MatmulEngine engine_;
  CompiledModel model_;
  std::vector<Pass> passes_;
  std::vector<Bytes> values_, weights_, gradients_;  // offsets in the arena; -1: of units that do not run
  Bytes workspace_ = 0;
  std::optional<Arena> arena_;
  std::vector<std::int32_t> tokens_;  // [n]
};

}  // namespace spillway
