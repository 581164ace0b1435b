// The identity of a store: the last two pages of each of its files, both alike. It reveals files of two stores, and files in each
// other's directory, and lets a store be opened by its directories alone. Only stores that outlive their process have one.
// Not here: what the store holds (commit_record.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "memory/base/types.h"

namespace spillway {

struct StoreIdentity {
  std::uint64_t store_id = 0;  // drawn when the store was made; never 0
  int rank = 0, ranks = 1;     // each rank of a run has a store of its own, all with the same store_id
  int directory = 0, directories = 1;
  Bytes bytes = 0;  // the logical size of the whole store
  Bytes stripe_bytes = 0;
  Bytes records_begin = 0;    // logical offset of the two places of commit records
  Bytes place_bytes = 0;      // bytes of each of the two places
  std::string run_directory;  // directory of the run that continues the store; empty if the path is too long for the page
  bool yields = false;        // kept unasked: a run that needs the room may turn it into a checkpoint of its run, and take it
  bool operator==(const StoreIdentity&) const = default;
  // True for the same file of the same store, whichever run continues it.
  bool is_same_file(const StoreIdentity& other) const;
};
// Bytes that it takes in a file. The second page is written when the first is with the disk, so that one of them can always be
// read.
inline constexpr Bytes kIdentityBytes = 2 * kExtentAlignment;

// `page` is [kExtentAlignment] bytes.
void encode_identity(const StoreIdentity& identity, std::span<std::byte> page);
// Returns nothing if the page is no identity at all (the end of a store without one). Throws IoError if it was one and is
// damaged, or is of another version; `file` is for the message.
std::optional<StoreIdentity> decode_identity(std::span<const std::byte> page, const std::string& file);

// Reads the identity of the store in a directory; nothing if there is no store, or one without an identity. Takes no lock.
std::optional<StoreIdentity> read_store_identity(const std::string& directory);

// Returns the identity of the store in all these directories. Throws IoError, naming the directory, if one of them holds no
// store, one of another store, or another directory's file; or if some are missing.
StoreIdentity identify_store(std::span<const std::string> directories);

}  // namespace spillway
