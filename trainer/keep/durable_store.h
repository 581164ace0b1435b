// The store of a run whose steps are durable: found by the run directory's store.json, read without an executor, given up.
// Not here: what a record is (nvme/commit_record.h), going on in place (trainer/run/step_loop.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "memory/plan.h"
#include "nvme/commit_record.h"
#include "nvme/store.h"
#include "nvme/store_identity.h"
#include "trainer/keep/state_sums.h"

namespace spillway {

// store.json of a run directory: there from when a first step is durable until a checkpoint has all that the store has.
struct StoreLink {
  std::uint64_t store_id = 0;
  std::vector<std::string> directories;  // absolute, in the store's order
};
void write_store_link(const std::string& run_directory, const StoreLink& link);
void remove_store_link(const std::string& run_directory);
std::optional<StoreLink> read_store_link(const std::string& run_directory);

// What a store holds.
struct DurableState {
  StoreLink link;
  StoreIdentity identity;
  CommitRecord record;
};
// IoError where the store is damaged, mixed up, missing in part, in use, or holds no step.
DurableState durable_state_in(const std::vector<std::string>& directories);
// Of a run; nothing where its steps are not durable. Where none of the directories that the run had holds it, and one of those
// `elsewhere` does, they were moved there.
std::optional<DurableState> durable_state_of(const std::string& run_directory, const std::vector<std::string>& elsewhere = {});

// The run that the store is known as that of, where that is another than `run_directory` and can go on with it, too: one of them
// is a copy, and only one can.
std::optional<std::string> rival_of(const DurableState& state, const std::string& run_directory);

// Makes way for a fresh store in these directories. Returns the store_ids of those there that nobody will go on with, because no
// run has a store.json that names them; runs are looked for where they were, and beside under other names. State that a killed
// run kept unasked becomes a checkpoint of that run first, and is told to `log`; InputError, naming the run, where it was asked
// to, even if its directory is not found: it may have been moved.
std::vector<std::uint64_t> make_way_in(const std::vector<std::string>& directories, const LogSink& log);

// The state as a checkpoint's file. IoError where an extent is damaged: array, file, offset.
StateSums save_durable_state(const DurableState& state, const std::string& file);
// The same of a store that is open, whose record stays the newest meanwhile; `between` is called
// after each extent, and may throw.
StateSums copy_durable_state(Store& store, const StoreIdentity& identity, const std::string& file,
                             const std::function<void()>& between);
// Removes the store's files. `state` must not be read again.
void discard_store(const DurableState& state);

// Reads everything that the record names. Each damaged extent is told to `say`.
struct ScrubResult {
  std::int64_t step = 0;
  std::int64_t extents = 0, damaged = 0;
  Bytes bytes = 0;
  std::string first_damage;
};
ScrubResult scrub(const DurableState& state, const std::function<void(const std::string& line)>& say);

}  // namespace spillway
