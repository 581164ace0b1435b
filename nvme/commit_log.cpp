#include "nvme/commit_log.h"

#include <algorithm>
#include <functional>
#include <span>
#include <utility>

#include "memory/base/error.h"

namespace spillway {

CommitLog::CommitLog(Store& store, const StoreIdentity& identity, std::span<const std::span<std::byte>> memory)
    : store_(store),
      identity_(identity),
      staging_(identity.place_bytes, "commit record"),
      channel_(store.open_channel({.registered = memory})) {}

std::optional<CommitRecord> CommitLog::newest() {
  std::vector<CommitRecord> all = records();
  return all.empty() ? std::nullopt : std::optional(std::move(all.front()));
}

std::vector<CommitRecord> CommitLog::records() {
  std::vector<CommitRecord> found;
  std::string refused;
  for (int place = 0; place < 2; ++place) {
    const IoSegment segment{identity_.records_begin + place * identity_.place_bytes, staging_.data(), identity_.place_bytes};
    channel_.read({&segment, 1});
    DecodedRecord decoded = decode_record({staging_.data(), static_cast<std::size_t>(identity_.place_bytes)}, identity_.store_id,
                                          identity_.records_begin);
    if (!decoded.refused.empty()) {
      const StorePlace where = store_.place_of(segment.offset);
      refused += fmt::format("{}the record at offset {} of {}: {}", refused.empty() ? "" : "; ", where.offset, where.file,
                             decoded.refused);
    }
    if (decoded.record) found.push_back(*std::move(decoded.record));
  }
  // A damaged record beside a whole one is a write that was cut off: the step that it was to make durable never was durable.
  if (found.empty() && !refused.empty())
    throw IoError("the store has no record that can be read: " + refused, "Go on from a checkpoint of the run.");
  std::ranges::sort(found, std::greater(), &CommitRecord::sequence);
  return found;
}

void CommitLog::erase_newer_than(const CommitRecord& record) {
  const std::vector<CommitRecord> found = records();
  if (found.empty() || found.front().sequence <= record.sequence) return;
  SPILLWAY_CHECK(found.front().sequence % 2 != record.sequence % 2, "record {} lies where record {} does", found.front().sequence,
                 record.sequence);
  std::ranges::fill(std::span(staging_.data(), static_cast<std::size_t>(identity_.place_bytes)), std::byte{0});
  const IoSegment segment{identity_.records_begin + static_cast<Bytes>(found.front().sequence % 2) * identity_.place_bytes,
                          staging_.data(), identity_.place_bytes};
  channel_.write({&segment, 1});
  channel_.sync();
}

void CommitLog::commit(const CommitRecord& record) {
  const Bytes bytes = round_up(encoded_bytes(record), kExtentAlignment);
  SPILLWAY_CHECK(bytes <= identity_.place_bytes && record.store_id == identity_.store_id,
                 "a record of {} bytes for a place of {}", bytes, identity_.place_bytes);
  encode_record(record, {staging_.data(), static_cast<std::size_t>(bytes)});
  channel_.sync();
  const IoSegment segment{identity_.records_begin + static_cast<Bytes>(record.sequence % 2) * identity_.place_bytes,
                          staging_.data(), bytes};
  channel_.write({&segment, 1});
  channel_.sync();
}

}  // namespace spillway
