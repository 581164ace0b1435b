// The store of a run whose steps are durable: how it is found by the run directory's store.json, read without an executor, and
// given up.
// Not here: the record (nvme/commit_record.h), going on in place (trainer/run/step_loop.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "memory/plan/plan.h"
#include "nvme/commit_record.h"
#include "nvme/store.h"
#include "nvme/store_identity.h"
#include "trainer/keep/state_sums.h"

namespace spillway {

// store.json of a run directory: exists from the first durable step until a checkpoint has all that the store has.
struct StoreLink {
  std::uint64_t store_id = 0;
  std::vector<std::string> directories;  // absolute, in the store's order
  int ranks = 1;                         // each has a store of its own, in rank-K of each directory where there are several
};
void write_store_link(const std::string& run_directory, const StoreLink& link);
void remove_store_link(const std::string& run_directory);
std::optional<StoreLink> read_store_link(const std::string& run_directory);

// The contents of a run's store, or of the stores of its ranks: the newest step that all of them hold.
struct StoredRank {
  StoreIdentity identity;
  CommitRecord record;
};
struct DurableState {
  StoreLink link;
  std::vector<StoredRank> ranks;  // [link.ranks]
  std::int64_t step() const { return ranks.front().record.step; }
  std::uint64_t model() const { return ranks.front().record.model; }
};
// Throws IoError if a store is damaged, mixed up, incomplete, missing, in use, or holds no step that the others hold.
DurableState durable_state_in(const std::vector<std::string>& directories);
// The state of a run; nothing if its steps are not durable. If none of the run's directories holds it and one of `elsewhere`
// does, the directories were moved there.
std::optional<DurableState> durable_state_of(const std::string& run_directory, const std::vector<std::string>& elsewhere = {});

// The run that the store names as its owner, if that is not `run_directory` and can go on with the store, too: one of the two is
// a copy, and only one may go on.
std::optional<std::string> rival_of(const DurableState& state, const std::string& run_directory);

// Makes room for a new store in these directories, those of one rank. Returns the store_ids of old stores there that nobody will
// go on with, because no run has a store.json that names them; runs are searched for in their old place, and beside it under
// other names. If a killed run kept its state without being asked to, the state becomes a checkpoint of that run first, and `log`
// is told. If it was asked to, throws an InputError that names the run, even if its directory is not found: it may have been
// moved.
std::vector<std::uint64_t> make_way_in(const std::vector<std::string>& directories, const LogSink& log);

// Writes the state as a checkpoint's file, put together from the parts of ranks. Throws an IoError with array, file and offset if
// an extent is damaged, and if an element is in no store.
StateSums save_durable_state(const DurableState& state, const std::string& file);
// The same for the open store of an only rank, whose record stays the newest meanwhile. Calls `between` after each extent; it may
// throw.
StateSums copy_durable_state(Store& store, const StoreIdentity& identity, const std::string& file,
                             const std::function<void()>& between);
// Removes the stores' files. `state` must not be read afterwards.
void discard_store(const DurableState& state);

// Reads everything that the record names. Reports each damaged extent to `say`.
struct ScrubResult {
  std::int64_t step = 0;
  std::int64_t extents = 0, damaged = 0;
  Bytes bytes = 0;
  std::string first_damage;
};
ScrubResult scrub(const DurableState& state, const std::function<void(const std::string& line)>& say);

}  // namespace spillway
