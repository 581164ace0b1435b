#include "trainer/keep/durable_store.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "files/json_place.h"
#include "files/json_text.h"
#include "files/posix_file.h"
#include "memory/base/error.h"
#include "memory/runtime/arena.h"
#include "nvme/commit_log.h"
#include "nvme/content_hash.h"
#include "nvme/store.h"
#include "nvme/store_file.h"
#include "trainer/host/interrupt.h"
#include "trainer/keep/checkpoint.h"
#include "trainer/keep/state_io.h"

namespace spillway {
namespace {

std::string link_path(const std::string& run_directory) { return run_directory + "/store.json"; }

StoreOptions options_of(const StoreLink& link, const StoreIdentity& identity) {
  StoreOptions options;
  for (const std::string& directory : link.directories) options.directories.push_back({directory, 0});
  options.bytes = identity.bytes;
  options.stripe_bytes = identity.stripe_bytes;
  options.content = StoreContent::existing;
  options.identity = identity;
  return options;
}

struct Extent {
  const DurableArray& array;
  Bytes begin = 0;  // offset in the array
  std::span<const std::byte> content;
  std::uint64_t hash = 0;  // hash in the record
};

// Visits the extents array by array, in the record's order.
void for_each_extent(Store& store, const StoreIdentity& identity, const CommitRecord& record,
                     const std::function<void(const Extent& extent)>& visit) {
  Bytes longest = kExtentAlignment;
  for (const DurableArray& array : record.arrays) longest = std::max(longest, array.extent_bytes);
  const Arena staging(longest, "an extent of the store");
  CommitLog log(store, identity);  // after the memory: its destructor ends a read that hangs after a failure
  auto hash = record.hashes.begin();
  for (const DurableArray& array : record.arrays) {
    for (Bytes begin = 0; begin < array.bytes; begin += array.extent_bytes) {
      const Bytes bytes = std::min(array.extent_bytes, array.bytes - begin);
      const IoSegment segment{array.begin[static_cast<std::size_t>(array.slot)] + begin, staging.data(), bytes};
      log.read({&segment, 1});
      visit({array, begin, {staging.data(), static_cast<std::size_t>(bytes)}, *hash++});
    }
  }
}

std::string damage_of(const Store& store, const Extent& extent) {
  const StorePlace place = store.place_of(extent.array.begin[static_cast<std::size_t>(extent.array.slot)] + extent.begin);
  return fmt::format("{}: damaged: bytes {} to {}, at offset {} of {}", extent.array.name, extent.begin,
                     extent.begin + std::ssize(extent.content), place.offset, place.file);
}

TensorToWrite tensor_of(const DurableArray& array, StateForm form) {
  for (const StateArray& of : trained_state(form)) {
    if (array.name.ends_with(state_array_name({}, of.kind))) return {array.name, element_type_of(of), {array.bytes / of.each()}};
  }
  throw IoError(fmt::format("the store has an array {}, which no state of this form has", array.name),
                "Go on from a checkpoint of the run.");
}

}  // namespace

void write_store_link(const std::string& run_directory, const StoreLink& link) {
  const nlohmann::ordered_json json = {{"store_id", fmt::format("{:016x}", link.store_id)}, {"directories", link.directories}};
  write_text_file(link_path(run_directory), json_text(json));
}

void remove_store_link(const std::string& run_directory) {
  std::error_code ignored;
  std::filesystem::remove(link_path(run_directory), ignored);
  sync_directory(run_directory);
}

std::optional<StoreLink> read_store_link(const std::string& run_directory) {
  const std::string path = link_path(run_directory);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  const auto json = parsed_json(read_text_file(path, kMiB));
  const JsonPlace place(json, path, "Remove the file to go on from the run's last checkpoint.", FileOf::program);
  StoreLink link{.store_id = place.at("store_id").hash(), .directories = {}};
  if (link.store_id == 0) place.at("store_id").refuse("is 0, which no store has");
  const JsonPlace directories = place.at("directories");
  if (directories.size() == 0) directories.refuse("has no entry");
  for (std::size_t i = 0; i < directories.size(); ++i) link.directories.push_back(directories.at(i).text());
  return link;
}

DurableState durable_state_in(const std::vector<std::string>& directories) {
  DurableState state;
  state.identity = identify_store(directories);
  state.link = {state.identity.store_id, directories};
  Store store(options_of(state.link, state.identity));
  std::optional<CommitRecord> newest = CommitLog(store, state.identity).newest();
  if (!newest)
    throw IoError(fmt::format("{}: the store there holds no step yet", directories.front()),
                  "Its run ended before it could; begin it anew.");
  state.record = std::move(*newest);
  return state;
}

namespace {

bool holds_store(const std::string& directory, std::uint64_t store_id) {
  const std::optional<StoreIdentity> found = read_store_identity(directory);
  return found && found->store_id == store_id;
}

}  // namespace

std::optional<DurableState> durable_state_of(const std::string& run_directory, const std::vector<std::string>& elsewhere) {
  const std::optional<StoreLink> link = read_store_link(run_directory);
  if (!link) return std::nullopt;
  const auto holds_it = [&](const std::string& directory) { return holds_store(directory, link->store_id); };
  const std::string else_do = fmt::format(
      "Were directories moved, name them: by --nvme to go on, by --store to verify.\nOr remove {} to go on from the run's last "
      "checkpoint instead.",
      link_path(run_directory));
  try {
    const bool moved = std::ranges::none_of(link->directories, holds_it) && std::ranges::any_of(elsewhere, holds_it);
    DurableState state = durable_state_in(moved ? elsewhere : link->directories);
    if (state.link.store_id == link->store_id) return state;
  } catch (const IoError& error) {
    throw IoError(error.what(), error.help().empty() ? else_do : error.help() + "\n" + else_do);
  } catch (const InputError& error) {
    throw IoError(error.what(), error.help().empty() ? else_do : error.help() + "\n" + else_do);
  }
  throw IoError(fmt::format("{} holds the store of another run than {}", link->directories.front(), run_directory), else_do);
}

namespace {

bool has_link_to(const std::string& run_directory, std::uint64_t store_id) {
  const std::optional<StoreLink> link = read_store_link(run_directory);
  return link && link->store_id == store_id;
}

}  // namespace

std::optional<std::string> rival_of(const DurableState& state, const std::string& run_directory) {
  const std::string& known = state.identity.run_directory;
  std::error_code error;
  if (known.empty() || std::filesystem::equivalent(known, run_directory, error) || error) return std::nullopt;
  try {
    if (has_link_to(known, state.identity.store_id)) return known;
  } catch (const IoError&) {
    // A damaged file cannot claim the store.
  }
  return std::nullopt;
}

namespace {

// The run that can go on with the store: in its old place, or beside it under another name.
std::optional<std::string> run_of(const StoreIdentity& store) {
  namespace fs = std::filesystem;
  if (has_link_to(store.run_directory, store.store_id)) return store.run_directory;
  std::error_code error;
  for (fs::directory_iterator entry(fs::path(store.run_directory).parent_path(), error), end; !error && entry != end;
       entry.increment(error)) {
    try {
      if (has_link_to(entry->path().string(), store.store_id)) return entry->path().string();
    } catch (const IoError&) {
      // Another run's damaged file says nothing about this store.
    }
  }
  return std::nullopt;
}

// Makes a checkpoint of the run from its store, then removes the store.
void give_back_to(const std::string& run, const LogSink& log) {
  const std::string else_do = fmt::format("Or remove {}, if that run is not to go on; or give another --nvme.", run);
  try {
    const DurableState state = *durable_state_of(run);
    const std::int64_t step = state.record.step;
    if (log)
      log(fmt::format("the run in {} was killed and has its state in {}: step {} becomes a checkpoint of it first", run,
                      state.link.directories.front(), step));
    const RunDirectory directory(run, ExistingRun::go_on);
    write_checkpoint(directory, step, [&](const std::string& file) { return save_durable_state(state, file); });
    remove_store_link(run);
    discard_store(state);
  } catch (const IoError& error) {
    throw IoError(error.what(), error.help().empty() ? else_do : error.help() + "\n" + else_do);
  }
}

}  // namespace

std::vector<std::uint64_t> make_way_in(const std::vector<std::string>& directories, const LogSink& log) {
  std::vector<std::uint64_t> orphans;
  for (const std::string& directory : directories) {
    const std::optional<StoreIdentity> found = read_store_identity(directory);
    if (!found) continue;
    if (found->run_directory.empty()) {
      throw InputError(fmt::format("--nvme {}: holds the state of a run, which can go on", directory),
                       fmt::format("Go on with it by --load, remove {} if it is not to go on, or give another --nvme.",
                                   store_file_path(directory)));
    }
    const std::optional<std::string> run = run_of(*found);
    std::error_code ignored;
    if (!run && (found->yields || std::filesystem::exists(found->run_directory, ignored))) {
      orphans.push_back(found->store_id);
    } else if (!run) {
      throw InputError(
          fmt::format("--nvme {}: holds the state of the run in {}, which is not there now", directory, found->run_directory),
          fmt::format("If it was moved, go on with it by --load where it is. If nobody is to go on with it, remove {}. Or give "
                      "another --nvme.",
                      store_file_path(directory)));
    } else if (found->yields) {
      give_back_to(*run, log);
    } else {
      throw InputError(
          fmt::format("--nvme {}: holds the state of the run in {}, which can go on", directory, *run),
          fmt::format("Go on with it by --load {}; or remove that and {}, if it is not to go on; or give another --nvme.", *run,
                      store_file_path(directory)));
    }
  }
  return orphans;
}

StateSums save_durable_state(const DurableState& state, const std::string& file) {
  Store store(options_of(state.link, state.identity));
  return copy_durable_state(store, state.identity, file, [] {
    InterruptHandler::stop_where_requested("the state in the store did not become a checkpoint; it stays there");
  });
}

StateSums copy_durable_state(Store& store, const StoreIdentity& identity, const std::string& file,
                             const std::function<void()>& between) {
  const CommitRecord record = CommitLog(store, identity).newest().value();
  if (record.form > static_cast<std::uint32_t>(StateForm::fp32))
    throw IoError(fmt::format("the store's state is of an unknown form {}", record.form));
  std::vector<TensorToWrite> tensors;
  for (const DurableArray& array : record.arrays) tensors.push_back(tensor_of(array, static_cast<StateForm>(record.form)));
  SummedWriter writer(file, tensors);
  for_each_extent(store, identity, record, [&](const Extent& extent) {
    if (extent_hash(extent.content) != extent.hash)
      throw IoError(damage_of(store, extent), "Go on from a checkpoint of the run: remove its store.json.");
    writer.append(extent.array.name, extent.content);
    between();
  });
  return writer.finish();
}

void discard_store(const DurableState& state) { Store(options_of(state.link, state.identity)).discard(); }

ScrubResult scrub(const DurableState& state, const std::function<void(const std::string& line)>& say) {
  ScrubResult result;
  result.step = state.record.step;
  Store store(options_of(state.link, state.identity));
  for_each_extent(store, state.identity, state.record, [&](const Extent& extent) {
    ++result.extents;
    result.bytes += std::ssize(extent.content);
    if (extent_hash(extent.content) == extent.hash) return;
    const std::string damage = damage_of(store, extent);
    if (result.damaged++ == 0) result.first_damage = damage;
    say(damage);
  });
  return result;
}

}  // namespace spillway
