// Runs units of a model alone on a device, in memory of their own that has a place for everything, as in core, to find the cost
// of a pass. For the probe and for benchmarks.
// Not here: steps (offload/), how passes are timed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "memory/base/parallel.h"
#include "models/unit_draft.h"
#include "offload/device.h"

namespace spillway {

// Fills with plain numbers, neither zero nor large, in place of weights and values.
void fill_with_numbers(std::byte* data, Bytes bytes, DType dtype);

// Removes the bytes from all caches: the next pass finds them as a step finds data that it has not touched for long.
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
  enum class Part : std::uint8_t { all, products, attention, others };  // which of a pass's kernels

  // Takes a model of the catalogue with only one layer, because all layers cost the same. Runs on the CPU; the pool must outlive
  // this.
  UnitsAlone(const ThreadPool& pool, std::string_view model, const Shape& shape, Units units);
  // Runs on a device, which must outlive this; `scratch` is the bound for its kernels' scratch memory.
  UnitsAlone(Device& device, const ScratchBound& scratch, std::string_view model, const Shape& shape, Units units);

  // Forwards in order, then backwards in reverse order. Each pass may run alone once all have run.
  const std::vector<Pass>& passes() const noexcept { return passes_; }
  // Only enqueues the pass if the device has a stream for it.
  void run(const Pass& pass, Part part = Part::all);
  void leave_caches(const Pass& pass) const;  // CPU: the unit's weights and, before a backward, gradients
  void run_all(Part part = Part::all);

  const Unit& unit_of(const Pass& pass) const { return graph().units[static_cast<std::size_t>(pass.unit)]; }
  Work work_of(const Pass& pass) const { return pass.forward ? unit_of(pass).forward_work : unit_of(pass).backward_work; }
  Work work_of_all() const;
  const UnitGraph& graph() const noexcept { return model_.graph; }

 private:
  struct Filtered {  // the kernels of a pass that belong to one part
    CallList of[4];
  };
  std::byte* at(Bytes offset) const { return base_ + offset; }
  void place_all(Units units);
  void fill_all(DType dtype);
  void fill(Bytes offset, Bytes bytes, DType dtype) const;

  std::unique_ptr<Device> own_;  // null: the device is the caller's
  Device& device_;
  CompiledModel model_;
  std::vector<Pass> passes_;
  std::vector<Filtered> calls_;                      // of the units' forwards, then of their backwards
  std::vector<Bytes> values_, weights_, gradients_;  // offsets in the arena; -1: the unit does not run
  Bytes constants_ = -1, tokens_ = -1 /* [n], their own targets */, words_ = -1, workspace_ = 0, all_ = 0;
  std::optional<Allocation> memory_;
  std::byte* base_ = nullptr;  // address as kernels see it
};

}  // namespace spillway
