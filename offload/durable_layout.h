// Where the state of a plan lies in a store that outlives its process: arrays that rest on NVMe where the plan has them, in two
// slots; behind these two copies of each array that rests in memory; last the commit records.
// Not here: the hashes of what lies there (state_extents.h), when it is written (committer.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/plan.h"
#include "nvme/commit_record.h"
#include "nvme/store_identity.h"

namespace spillway {

// All arrays of the state, block by block, with what one checksum is of. Nothing of it depends on how a program moves them but
// the extents, which no read or write cuts.
struct DurableArrays {
  std::vector<DurableArray> arrays;
  std::vector<int> buffer;           // [arrays] index into Plan::resident
  std::vector<int> array_of_buffer;  // [resident buffers]; -1: no state
};

struct DurableLayout {
  DurableArrays state;     // with the places of copies filled in
  Bytes copied_bytes = 0;  // of state in memory, once
  Bytes records_begin = 0;
  Bytes place_bytes = 0;  // of a record
  Bytes store_bytes = 0;
};
DurableLayout durable_layout(const Plan& plan, const UnitGraph& graph);

// Of the shapes of all parameters and their order: state fits no other model.
std::uint64_t model_hash(const UnitGraph& graph);

// Whether a record's state lies where the layout has it, so that a run can go on in place.
bool lies_as(const CommitRecord& record, const DurableLayout& layout, const StoreIdentity& identity);

}  // namespace spillway
