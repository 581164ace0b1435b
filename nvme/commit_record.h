// The record that makes a step durable: the slot of each array that holds the state after that step, and the hash of every
// extent. It is small, checksummed as a whole, and written after the data that it names. A record that is read back is taken for
// hostile.
// Not here: when it is written and where (commit_log.h), what the arrays are (offload/durable_layout.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "memory/base/types.h"

namespace spillway {

struct DurableArray {
  std::string name;  // "layer 3 mlp/v"
  // The elements of the model's array that this is: all, or the part of one of several ranks, which may be empty. Bytes behind
  // them are padding.
  std::int64_t first_element = 0, elements = 0;
  Bytes bytes = 0;               // of one slot
  std::array<Bytes, 2> begin{};  // logical offset of each slot
  int slot = 0;                  // the one that holds the state
  Bytes extent_bytes = 0;        // bytes per hash (extent_hash), up to kMostExtentBytes; the last extent may be shorter
  std::int64_t extents() const { return (bytes + extent_bytes - 1) / extent_bytes; }
  std::int64_t end_element() const { return first_element + elements; }
  bool operator==(const DurableArray&) const = default;
};

struct CommitRecord {
  std::uint64_t store_id = 0;  // of the store that holds the record
  std::uint64_t sequence = 0;  // of the record: one more than that of the record before
  std::int64_t step = 0;       // the step whose state this is; data position and schedules follow from it
  std::uint64_t seed = 0;      // of the run
  std::uint64_t model = 0;     // hash of the shapes of all parameters
  std::uint32_t form = 0;      // the form in which state is stored (StateForm)
  std::vector<DurableArray> arrays;
  std::vector<std::uint64_t> hashes;  // [extents of all arrays, in their order], each of the slot that holds the state
  bool operator==(const CommitRecord&) const = default;
};

Bytes encoded_bytes(const CommitRecord& record);
// Fills the first encoded_bytes(record) of `out`. Allocates nothing.
void encode_record(const CommitRecord& record, std::span<std::byte> out);

struct DecodedRecord {
  std::optional<CommitRecord> record;
  std::string refused;  // why there is no record; empty where the bytes are all zero, as in a place that was never written
};
// `in` may go on beyond the record. Every range in the record must lie within [0, records_begin) of the store.
DecodedRecord decode_record(std::span<const std::byte> in, std::uint64_t store_id, Bytes records_begin);

}  // namespace spillway
