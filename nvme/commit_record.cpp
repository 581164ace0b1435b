#include "nvme/commit_record.h"

#include <algorithm>
#include <numeric>

#include "memory/base/error.h"
#include "nvme/byte_codec.h"
#include "nvme/content_hash.h"

namespace spillway {
namespace {

constexpr std::uint64_t kMagic = 0x3154494D4D4F4353;  // "SCOMMIT1"
constexpr std::uint32_t kVersion = 3;
constexpr Bytes kHashBytes = sizeof(std::uint64_t);
constexpr Bytes kHeaderBytes = 8 + 4 + 4 + 8 + 8 + 8 + 8 + 8 + 8 + 4 + 8;
constexpr Bytes kArrayBytes = 4 + 8 + 8 + 8 + 8 + 8 + 4 + 8;  // besides its name

constexpr std::int64_t kMostElements = std::int64_t{1} << 60;

bool in_store(Bytes begin, Bytes bytes, Bytes end) {
  return begin >= 0 && begin % kExtentAlignment == 0 && begin <= end && bytes <= end - begin;
}

bool sensible(const DurableArray& array, Bytes end) {
  return array.first_element >= 0 && array.first_element <= kMostElements && array.elements >= 0 &&
         array.elements <= array.bytes && array.bytes > 0 && array.bytes % kExtentAlignment == 0 && array.extent_bytes > 0 &&
         array.extent_bytes % kExtentAlignment == 0 && array.extent_bytes <= std::min(array.bytes, kMostExtentBytes) &&
         (array.slot == 0 || array.slot == 1) && in_store(array.begin[0], array.bytes, end) &&
         in_store(array.begin[1], array.bytes, end);
}

}  // namespace

Bytes encoded_bytes(const CommitRecord& record) {
  const auto of_array = [](Bytes sum, const DurableArray& array) { return sum + kArrayBytes + std::ssize(array.name); };
  return std::accumulate(record.arrays.begin(), record.arrays.end(), kHeaderBytes, of_array) +
         kHashBytes * std::ssize(record.hashes) + kHashBytes;
}

void encode_record(const CommitRecord& record, std::span<std::byte> out) {
  const auto bytes = static_cast<std::size_t>(encoded_bytes(record));
  SPILLWAY_CHECK(bytes <= out.size(), "a record of {} bytes in {}", bytes, out.size());
  ByteWriter writer(out.first(bytes));
  writer.put(kMagic);
  writer.put(kVersion);
  writer.put(record.form);
  writer.put(static_cast<std::uint64_t>(bytes));
  writer.put(record.store_id);
  writer.put(record.sequence);
  writer.put(record.step);
  writer.put(record.seed);
  writer.put(record.model);
  writer.put(static_cast<std::uint32_t>(record.arrays.size()));
  writer.put(static_cast<std::uint64_t>(record.hashes.size()));
  for (const DurableArray& array : record.arrays) {
    writer.put_text(array.name);
    writer.put(array.first_element);
    writer.put(array.elements);
    writer.put(array.bytes);
    writer.put(array.begin[0]);
    writer.put(array.begin[1]);
    writer.put(std::int32_t{array.slot});
    writer.put(array.extent_bytes);
  }
  writer.put_bytes(std::as_bytes(std::span(record.hashes)));
  writer.put(content_hash(out.first(writer.size())));
  SPILLWAY_CHECK(writer.size() == bytes, "a record of {} bytes took {}", bytes, writer.size());
}

DecodedRecord decode_record(std::span<const std::byte> in, std::uint64_t store_id, Bytes records_begin) {
  if (std::all_of(in.begin(), in.end(), [](std::byte b) { return b == std::byte{0}; })) return {};
  ByteReader reader(in);
  if (reader.get<std::uint64_t>() != kMagic) return {{}, "it does not begin as a record does"};
  if (const auto version = reader.get<std::uint32_t>(); version != kVersion) {
    return {{}, fmt::format("it is of version {}; this program knows version {}", version, kVersion)};
  }
  CommitRecord record;
  record.form = reader.get<std::uint32_t>();
  const auto bytes = reader.get<std::uint64_t>();
  if (!reader.ok() || bytes > in.size() || bytes < static_cast<std::uint64_t>(kHeaderBytes + kHashBytes)) {
    return {{}, fmt::format("it says that it has {} bytes of {}", bytes, in.size())};
  }
  const auto content = in.first(static_cast<std::size_t>(bytes) - kHashBytes);
  std::uint64_t hash = 0;
  std::memcpy(&hash, in.data() + content.size(), sizeof hash);
  if (hash != content_hash(content)) return {{}, "its checksum is wrong"};
  record.store_id = reader.get<std::uint64_t>();
  if (record.store_id != store_id) return {{}, "it is of another store"};
  record.sequence = reader.get<std::uint64_t>();
  record.step = reader.get<std::int64_t>();
  record.seed = reader.get<std::uint64_t>();
  record.model = reader.get<std::uint64_t>();
  const auto arrays = reader.get<std::uint32_t>();
  const auto hashes = reader.get<std::uint64_t>();
  // The bytes that are left bound what is reserved.
  if (!reader.ok() || record.step < 0 || arrays > reader.left() / kArrayBytes || hashes > reader.left() / kHashBytes) {
    return {{}, "it contradicts itself"};
  }
  record.arrays.reserve(arrays);
  std::uint64_t extents = 0;
  for (std::uint32_t i = 0; i < arrays; ++i) {
    DurableArray array;
    array.name = reader.get_text();
    array.first_element = reader.get<std::int64_t>();
    array.elements = reader.get<std::int64_t>();
    array.bytes = reader.get<Bytes>();
    array.begin[0] = reader.get<Bytes>();
    array.begin[1] = reader.get<Bytes>();
    array.slot = reader.get<std::int32_t>();
    array.extent_bytes = reader.get<Bytes>();
    if (!reader.ok() || !sensible(array, records_begin))
      return {{}, fmt::format("what it says of array {} ({}) cannot be", i, array.name)};
    extents += static_cast<std::uint64_t>(array.extents());
    record.arrays.push_back(std::move(array));
  }
  if (extents != hashes || reader.left() < hashes * kHashBytes)
    return {{}, fmt::format("it has {} checksums for {} extents", hashes, extents)};
  record.hashes.resize(static_cast<std::size_t>(hashes));
  for (std::uint64_t& value : record.hashes) value = reader.get<std::uint64_t>();
  return {std::move(record), {}};
}

}  // namespace spillway
