// Commit records and store identities, as they are and with their checksums set right, which random bytes never have.
#include <cstring>
#include <vector>

#include "nvme/commit_record.h"
#include "nvme/content_hash.h"
#include "nvme/store_identity.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace spillway;
  constexpr std::size_t kStoreIdAt = 24, kBytesAt = 16;
  constexpr Bytes kEnd = Bytes{1} << 40;
  std::vector<std::byte> bytes(size);
  if (size > 0) std::memcpy(bytes.data(), data, size);
  (void)decode_record(bytes, 7, kEnd);
  if (size >= 80) {
    const std::uint64_t whole = size, id = 7;
    std::memcpy(bytes.data() + kBytesAt, &whole, sizeof whole);
    std::memcpy(bytes.data() + kStoreIdAt, &id, sizeof id);
    const std::uint64_t hash = content_hash(std::span(bytes).first(size - sizeof(std::uint64_t)));
    std::memcpy(bytes.data() + size - sizeof hash, &hash, sizeof hash);
    const DecodedRecord decoded = decode_record(bytes, 7, kEnd);
    if (decoded.record) {
      std::vector<std::byte> again(static_cast<std::size_t>(encoded_bytes(*decoded.record)));
      encode_record(*decoded.record, again);
      if (decode_record(again, 7, kEnd).record != decoded.record) __builtin_trap();
    }
  }
  bytes.resize(static_cast<std::size_t>(kExtentAlignment));
  const std::uint64_t hash = content_hash(std::span(bytes).first(bytes.size() - sizeof(std::uint64_t)));
  std::memcpy(bytes.data() + bytes.size() - sizeof hash, &hash, sizeof hash);
  refuse_or_accept([&] { (void)decode_identity(bytes, "spillway-store.bin"); });
  return 0;
}
