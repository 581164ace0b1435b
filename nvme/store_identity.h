// Who a store is: the last two pages of each of its files, alike, so that files of two stores, or in each other's directory, are
// found out, and a store can be opened by its directories alone. Only stores that outlive their process have one.
// Not here: what the store holds (commit_record.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "memory/types.h"

namespace spillway {

struct StoreIdentity {
  std::uint64_t store_id = 0;  // drawn when the store was made; never 0
  int directory = 0, directories = 1;
  Bytes bytes = 0;  // the logical size of the whole store
  Bytes stripe_bytes = 0;
  Bytes records_begin = 0;    // logical offset of the two places of commit records
  Bytes place_bytes = 0;      // of each of the two
  std::string run_directory;  // whose run goes on with it; empty where the path is too long for the page
  bool yields = false;        // kept unasked: a run that needs the room may turn it into a checkpoint of its run, and take it
  bool operator==(const StoreIdentity&) const = default;
  // The same file of the same store, whoever goes on with it.
  bool is_same_file(const StoreIdentity& other) const;
};
// What it takes of a file. The second page is written when the first is with the disk: one of them can always be read.
inline constexpr Bytes kIdentityBytes = 2 * kExtentAlignment;

// [kExtentAlignment] bytes.
void encode_identity(const StoreIdentity& identity, std::span<std::byte> page);
// Nothing where the page is no identity at all (the end of a store without one). IoError where it was one and is damaged, or of
// another version; `file` is for the message.
std::optional<StoreIdentity> decode_identity(std::span<const std::byte> page, const std::string& file);

// Of the store in a directory: nothing where there is none, or one without identity. Takes no lock.
std::optional<StoreIdentity> read_store_identity(const std::string& directory);

// Of the store in all these directories: IoError, naming the directory, where one of them holds none, or one of another store, or
// another directory's; or where some are missing.
StoreIdentity identify_store(std::span<const std::string> directories);

}  // namespace spillway
