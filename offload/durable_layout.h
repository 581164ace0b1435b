// The layout of a plan's state in a store that outlives its process: first arrays that rest on NVMe, where the plan has them, in
// two slots; then two copies of each array that rests in memory; last the commit records. Blocks that are not trained have one
// slot, no copy, and no part in a commit: their weights are written anew when a run goes on.
// Not here: hashes of the bytes that lie there (state_extents.h), when they are written (committer.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "memory/plan/plan.h"
#include "nvme/commit_record.h"
#include "nvme/store_identity.h"

namespace spillway {

// All arrays of the state, those of trained blocks first, with the extents that one checksum covers. Only these depend on how a
// program moves arrays: no read or write cuts an extent.
struct DurableArrays {
  std::vector<DurableArray> arrays;
  std::vector<int> buffer;           // [arrays] index into Plan::resident
  std::vector<int> array_of_buffer;  // [resident buffers]; -1: no state
  std::size_t committed = 0;         // the first so many are in commits: those of trained blocks
};

struct DurableLayout {
  DurableArrays state;     // with the places of copies filled in
  Bytes copied_bytes = 0;  // bytes of one copy of the state in memory
  Bytes records_begin = 0;
  Bytes place_bytes = 0;  // bytes of a record's place
  Bytes store_bytes = 0;
};
// The arrays that a commit's record has.
inline std::span<const DurableArray> committed_arrays(const DurableLayout& layout) {
  return std::span(layout.state.arrays).first(layout.state.committed);
}
// That of one rank; all have the same sizes.
DurableLayout durable_layout(const Plan& plan, const UnitGraph& graph, int rank = 0);

// A hash of the shapes of all parameters and their order: state fits no model with another hash.
std::uint64_t model_hash(const UnitGraph& graph);

// True when a record's state lies where the layout has it, so that a run can go on in place.
bool lies_as(const CommitRecord& record, const DurableLayout& layout, const StoreIdentity& identity);

}  // namespace spillway
