// Units of a model run by themselves, in memory of their own with a place for everything, as in core: what a pass costs on this
// machine. For the probe and for benchmarks.
// Not here: steps (offload/), how passes are timed.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "memory/arena.h"
#include "memory/parallel.h"
#include "models/cpu/cpu_backend.h"

namespace spillway {

// Plain numbers, neither zero nor large, in place of weights and values.
void fill_with_numbers(std::byte* data, Bytes bytes, DType dtype);

// Out of all caches: what runs next finds the bytes as a step finds what it has not touched for long.
void leave_caches(const std::byte* data, Bytes bytes);

class UnitsAlone {
 public:
  struct Shape {
    DType dtype = DType::bfloat16;
    std::int64_t micro_batch = 1, sequence = 0;  // sequences, and tokens of each
    HeadMode head = HeadMode::tiled;
  };
  struct Pass {
    int unit = 0;
    bool forward = true;
  };
  enum class Units : std::uint8_t { all, of_layers };

  // Of a model of the catalogue, but with one layer, as all cost the same. The pool must outlive this.
  UnitsAlone(const ThreadPool& pool, std::string_view model, const Shape& shape, Units units);

  // Forwards in their order, then backwards in the reverse; each may be run by itself once all have run.
  const std::vector<Pass>& passes() const noexcept { return passes_; }
  void run(const Pass& pass);
  void leave_caches(const Pass& pass) const;  // the unit's weights and, before a backward, gradients
  void run_all();

  const Unit& unit_of(const Pass& pass) const { return graph().units[static_cast<std::size_t>(pass.unit)]; }
  Work work_of(const Pass& pass) const { return pass.forward ? unit_of(pass).forward_work : unit_of(pass).backward_work; }
  Work work_of_all() const;
  const UnitGraph& graph() const noexcept { return model_.graph; }

 private:
  CompiledModel model_;
  CpuBackend backend_;
  std::vector<Pass> passes_;
  std::vector<Bytes> values_, weights_, gradients_;  // offsets in the arena; -1: of units that do not run
  Bytes constants_ = -1, workspace_ = 0;
  std::optional<Arena> arena_;
  std::vector<std::int32_t> tokens_;  // [n], their own targets
};

}  // namespace spillway
