#include "trainer/keep/durable_store.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>

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
#include "trainer/machine/nvme_directories.h"

namespace spillway {
namespace {

std::string link_path(const std::string& run_directory) { return run_directory + "/store.json"; }

std::vector<std::string> directories_of(const StoreLink& link, int rank) {
  std::vector<std::string> directories;
  for (const std::string& directory : link.directories) directories.push_back(directory_of_rank(directory, rank, link.ranks));
  return directories;
}

StoreOptions options_of(const std::vector<std::string>& directories, const StoreIdentity& identity) {
  StoreOptions options;
  for (const std::string& directory : directories) options.directories.push_back({directory, 0});
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

std::string damage_of(const Store& store, const Extent& extent) {
  const StorePlace place = store.place_of(extent.array.begin[static_cast<std::size_t>(extent.array.slot)] + extent.begin);
  return fmt::format("{}: damaged: bytes {} to {}, at offset {} of {}", extent.array.name, extent.begin,
                     extent.begin + std::ssize(extent.content), place.offset, place.file);
}

// Reads the arrays of one rank's record.
class ArrayReader {
 public:
  // All must outlive this.
  ArrayReader(Store& store, const StoreIdentity& identity, const CommitRecord& record)
      : store_(store), record_(record), staging_(longest_extent(record), "an extent of the store"), log_(store, identity) {
    for (const DurableArray& array : record.arrays) {
      first_hash_.push_back(extents_);
      extents_ += static_cast<std::size_t>(array.extents());
    }
  }

  const DurableArray& array(std::size_t index) const { return record_.arrays[index]; }
  std::size_t arrays() const { return record_.arrays.size(); }
  const Store& store() const { return store_; }

  // Visits the extents of an array in their order.
  template <typename Visit>
  void for_each_extent(std::size_t index, const Visit& visit) {
    const DurableArray& array = record_.arrays[index];
    std::size_t hash = first_hash_[index];
    for (Bytes begin = 0; begin < array.bytes; begin += array.extent_bytes) {
      const Bytes bytes = std::min(array.extent_bytes, array.bytes - begin);
      const IoSegment segment{array.begin[static_cast<std::size_t>(array.slot)] + begin, staging_.data(), bytes};
      log_.read({&segment, 1});
      visit(Extent{array, begin, {staging_.data(), static_cast<std::size_t>(bytes)}, record_.hashes[hash++]});
    }
  }

 private:
  static Bytes longest_extent(const CommitRecord& record) {
    Bytes longest = kExtentAlignment;
    for (const DurableArray& array : record.arrays) longest = std::max(longest, array.extent_bytes);
    return longest;
  }

  Store& store_;
  const CommitRecord& record_;
  std::vector<std::size_t> first_hash_;  // [arrays]
  std::size_t extents_ = 0;
  const Arena staging_;
  CommitLog log_;  // after the memory: its destructor ends a read that hangs after a failure
};

// The stores of all ranks, open.
class OpenStores {
 public:
  explicit OpenStores(const DurableState& state) {
    for (int rank = 0; rank < state.link.ranks; ++rank) {
      const StoredRank& of = state.ranks[static_cast<std::size_t>(rank)];
      stores_.push_back(std::make_unique<Store>(options_of(directories_of(state.link, rank), of.identity)));
      readers_.push_back(std::make_unique<ArrayReader>(*stores_.back(), of.identity, of.record));
    }
  }
  std::span<const std::unique_ptr<ArrayReader>> readers() const { return readers_; }

 private:
  std::vector<std::unique_ptr<Store>> stores_;
  std::vector<std::unique_ptr<ArrayReader>> readers_;
};

StateArray array_of(const DurableArray& array, StateForm form) {
  for (const StateArray& of : trained_state(form)) {
    if (array.name.ends_with(state_array_name({}, of.kind))) return of;
  }
  throw IoError(fmt::format("the store has an array {}, which no state of this form has", array.name),
                "Go on from a checkpoint of the run.");
}

// The ranks whose parts of an array make it whole, in the order of their elements; ranks that have another copy are left out.
std::vector<ArrayReader*> parts_of(std::span<const std::unique_ptr<ArrayReader>> ranks, std::size_t index) {
  std::vector<ArrayReader*> parts;
  std::int64_t end = 0, all = 0;
  for (const auto& rank : ranks) {
    const DurableArray& array = rank->array(index);
    all = std::max(all, array.end_element());
    if (array.first_element != end || array.elements == 0) continue;
    parts.push_back(rank.get());
    end = array.end_element();
  }
  if (end == all && end > 0) return parts;
  throw IoError(fmt::format("{}: the stores of {} ranks have elements up to {} of {}", ranks.front()->array(index).name,
                            ranks.size(), end, all),
                "Go on from a checkpoint of the run: remove its store.json.");
}

StateSums write_state(std::span<const std::unique_ptr<ArrayReader>> ranks, std::uint32_t form, const std::string& file,
                      const std::function<void()>& between) {
  if (form > static_cast<std::uint32_t>(StateForm::fp16))
    throw IoError(fmt::format("the store's state is of an unknown form {}", form));
  const std::size_t arrays = ranks.front()->arrays();
  std::vector<TensorToWrite> tensors;
  for (std::size_t index = 0; index < arrays; ++index) {
    const DurableArray& last = parts_of(ranks, index).back()->array(index);
    tensors.push_back({last.name, element_type_of(array_of(last, static_cast<StateForm>(form))), {last.end_element()}});
  }
  SummedWriter writer(file, tensors);
  for (std::size_t index = 0; index < arrays; ++index) {
    for (ArrayReader* const part : parts_of(ranks, index)) {
      const Bytes held = part->array(index).elements * array_of(part->array(index), static_cast<StateForm>(form)).each();
      part->for_each_extent(index, [&](const Extent& extent) {
        if (extent_hash(extent.content) != extent.hash)
          throw IoError(damage_of(part->store(), extent), "Go on from a checkpoint of the run: remove its store.json.");
        const Bytes bytes = std::clamp<Bytes>(held - extent.begin, 0, std::ssize(extent.content));
        writer.append(extent.array.name, extent.content.first(static_cast<std::size_t>(bytes)));
        between();
      });
    }
  }
  return writer.finish();
}

}  // namespace

void write_store_link(const std::string& run_directory, const StoreLink& link) {
  const nlohmann::ordered_json json = {
      {"store_id", fmt::format("{:016x}", link.store_id)}, {"directories", link.directories}, {"ranks", link.ranks}};
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
  if (place.has("ranks")) link.ranks = static_cast<int>(place.at("ranks").integer(1, 1 << 20));
  if (link.store_id == 0) place.at("store_id").refuse("is 0, which no store has");
  const JsonPlace directories = place.at("directories");
  if (directories.size() == 0) directories.refuse("has no entry");
  for (std::size_t i = 0; i < directories.size(); ++i) link.directories.push_back(directories.at(i).text());
  return link;
}

namespace {

// The records of each rank's store, the newest first.
std::vector<std::vector<CommitRecord>> records_of(const StoreLink& link, std::vector<StoreIdentity>& identities) {
  std::vector<std::vector<CommitRecord>> records;
  for (int rank = 0; rank < link.ranks; ++rank) {
    const std::vector<std::string> directories = directories_of(link, rank);
    const StoreIdentity& identity = identities.emplace_back(identify_store(directories));
    if (identity.rank != rank || identity.ranks != link.ranks) {
      throw IoError(fmt::format("{}: holds the store of rank {} of {}, where that of rank {} of {} belongs", directories.front(),
                                identity.rank, identity.ranks, rank, link.ranks));
    }
    if (identity.store_id != identities.front().store_id)
      throw IoError(fmt::format("{} holds the store of another run than rank 0's", directories.front()));
    Store store(options_of(directories, identity));
    records.push_back(CommitLog(store, identity).records());
    if (records.back().empty())
      throw IoError(fmt::format("{}: the store there holds no step yet", directories.front()),
                    "Its run ended before it could; begin it anew.");
  }
  return records;
}

const CommitRecord* record_of(const std::vector<CommitRecord>& records, std::int64_t step) {
  const auto found = std::ranges::find(records, step, &CommitRecord::step);
  return found == records.end() ? nullptr : &*found;
}

DurableState state_of(const StoreLink& link) {
  std::vector<StoreIdentity> identities;
  const auto records = records_of(link, identities);
  for (const CommitRecord& candidate : records.front()) {
    DurableState state{.link = link, .ranks = {}};
    state.link.store_id = identities.front().store_id;
    for (std::size_t rank = 0; rank < records.size(); ++rank) {
      const CommitRecord* const record = record_of(records[rank], candidate.step);
      if (record == nullptr || record->arrays.size() != candidate.arrays.size()) break;
      state.ranks.push_back({identities[rank], *record});
    }
    if (state.ranks.size() == records.size()) return state;
  }
  throw IoError(fmt::format("{}: the stores of {} ranks hold no step that all have", link.directories.front(), link.ranks),
                "Go on from a checkpoint of the run.");
}

}  // namespace

DurableState durable_state_in(const std::vector<std::string>& directories) {
  StoreLink link{.store_id = 0, .directories = directories};
  if (!read_store_identity(directories.front())) {
    if (const auto of_rank = read_store_identity(directory_of_rank(directories.front(), 0, 2))) link.ranks = of_rank->ranks;
  }
  return state_of(link);
}

namespace {

bool holds_store(const std::string& directory, const StoreLink& link) {
  const std::optional<StoreIdentity> found = read_store_identity(directory_of_rank(directory, 0, link.ranks));
  return found && found->store_id == link.store_id;
}

}  // namespace

std::optional<DurableState> durable_state_of(const std::string& run_directory, const std::vector<std::string>& elsewhere) {
  const std::optional<StoreLink> link = read_store_link(run_directory);
  if (!link) return std::nullopt;
  const auto holds_it = [&](const std::string& directory) { return holds_store(directory, *link); };
  const std::string else_do = fmt::format(
      "Were directories moved, name them: by --nvme to go on, by --store to verify.\nOr remove {} to go on from the run's last "
      "checkpoint instead.",
      link_path(run_directory));
  try {
    const bool moved = std::ranges::none_of(link->directories, holds_it) && std::ranges::any_of(elsewhere, holds_it);
    StoreLink there = *link;
    if (moved) there.directories = elsewhere;
    DurableState state = state_of(there);
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
  const std::string& known = state.ranks.front().identity.run_directory;
  std::error_code error;
  if (known.empty() || std::filesystem::equivalent(known, run_directory, error) || error) return std::nullopt;
  try {
    if (has_link_to(known, state.link.store_id)) return known;
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
    const std::int64_t step = state.step();
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
  const OpenStores stores(state);
  return write_state(stores.readers(), state.ranks.front().record.form, file, [] {
    InterruptHandler::stop_where_requested("the state in the store did not become a checkpoint; it stays there");
  });
}

StateSums copy_durable_state(Store& store, const StoreIdentity& identity, const std::string& file,
                             const std::function<void()>& between) {
  const CommitRecord record = CommitLog(store, identity).newest().value();
  const std::unique_ptr<ArrayReader> reader = std::make_unique<ArrayReader>(store, identity, record);
  return write_state({&reader, 1}, record.form, file, between);
}

void discard_store(const DurableState& state) {
  for (int rank = 0; rank < state.link.ranks; ++rank) {
    const std::vector<std::string> directories = directories_of(state.link, rank);
    Store(options_of(directories, state.ranks[static_cast<std::size_t>(rank)].identity)).discard();
    if (state.link.ranks > 1) remove_empty_directories(directories);
  }
}

ScrubResult scrub(const DurableState& state, const std::function<void(const std::string& line)>& say) {
  ScrubResult result;
  result.step = state.step();
  const OpenStores stores(state);
  for (const auto& reader : stores.readers()) {
    for (std::size_t index = 0; index < reader->arrays(); ++index) {
      reader->for_each_extent(index, [&](const Extent& extent) {
        ++result.extents;
        result.bytes += std::ssize(extent.content);
        if (extent_hash(extent.content) == extent.hash) return;
        const std::string damage = damage_of(reader->store(), extent);
        if (result.damaged++ == 0) result.first_damage = damage;
        say(damage);
      });
    }
  }
  return result;
}

}  // namespace spillway
